"""Builders that download, through TFDS's own manager and cache."""

import hashlib
import io
import pickle
import tarfile
import zipfile

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.builders import download_manager
from my_datasets.building.options import BuildOptions
from my_datasets.errors import ChecksumError, DownloadError

NUMBERS = b"".join(b"%d\n" % i for i in range(1000))


def builder(tmp_path, urls, *, extract=False, records=None, mirrors=None, at=None):
    """Returns a builder that downloads `urls`, nested anyhow, and has a number in each line."""
    (tmp_path / "code").mkdir(exist_ok=True)
    path = tmp_path / "code/checksums.tsv"
    if records is not None:
        path.write_text(
            "".join(
                f"{url}\t{len(body)}\t{hashlib.sha256(body).hexdigest()}\t{url.split('/')[-1]}\n"
                for url, body in records.items()
            )
        )

    class Downloading(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = "downloading"
        _checksums_path = path
        MIRRORS = mirrors or {}

        def _info(self):
            features = tfds.features.FeaturesDict({"n": np.int64})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            get = dl_manager.download_and_extract if extract else dl_manager.download
            self.got = get(urls)
            return {"train": self._generate_examples(self.got)}

        def _generate_examples(self, got):
            for i, file in enumerate(files(got)):
                for j, line in enumerate(file.read_text().splitlines()):
                    yield f"{i}-{j}", {"n": int(line)}

    return Downloading(data_dir=at or tmp_path / "data")


def files(got):
    if isinstance(got, dict):
        got = list(got.values())
    if isinstance(got, (list, tuple)):
        return [file for item in got for file in files(item)]
    return sorted(got.iterdir()) if got.is_dir() else [got]


def numbers(made):
    return sorted(int(example["n"]) for example in made.as_dataset(split="train"))


def prepared(made, **options):
    made.download_and_prepare(build_options=BuildOptions(workers=1, **options))
    return made


def test_files_are_fetched_into_the_cache_of_tfds(server, tmp_path):
    url = server.put("/n.txt", NUMBERS, drops=[1000])
    made = prepared(builder(tmp_path, url, records={url: NUMBERS}))
    assert numbers(made) == list(range(1000))
    assert [asked for _, asked in server.asked] == [None, "bytes=1000-"]
    assert made.info.download_size == len(NUMBERS)
    # TFDS alone, with the same cache, asks the server for nothing.
    manager = tfds.download.DownloadManager(
        download_dir=tmp_path / "data/downloads", url_infos=made.url_infos,
        dataset_name="downloading",
    )  # fmt: skip
    assert manager.download(url) == made.got
    assert manager.download(url).read_bytes() == NUMBERS
    assert server.count["/n.txt"] == 2


def test_it_can_be_sent_to_workers_of_beam(server, tmp_path):
    url = server.put("/n.txt", NUMBERS)
    made = builder(tmp_path, url, records={url: NUMBERS})
    config = tfds.download.DownloadConfig()
    inner = made._make_download_manager(tmp_path / "downloads", config)
    manager = download_manager.DownloadManager(inner, made._download_plan(inner, config, {}))
    assert pickle.loads(pickle.dumps(manager)).download(url).read_bytes() == NUMBERS


def test_what_tfds_has_in_its_cache_is_not_fetched(server, tmp_path):
    url = server.put("/n.txt", NUMBERS)
    made = builder(tmp_path, url, records={url: NUMBERS})
    tfds.download.DownloadManager(
        download_dir=tmp_path / "data/downloads", url_infos=made.url_infos,
        dataset_name="downloading",
    ).download(url)  # fmt: skip
    prepared(made)
    assert server.count["/n.txt"] == 1


def test_nested_addresses_and_archives(server, tmp_path):
    packed, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("a.txt", "b.txt"):
            info = tarfile.TarInfo(name)
            info.size = 2
            archive.addfile(info, io.BytesIO(b"%d\n" % (name == "b.txt")))
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("c.txt", "2\n")
    first = server.put("/x.tar.gz", packed.getvalue())
    second = server.put("/y.zip", zipped.getvalue())
    plain = server.put("/z.txt", b"3\n")
    urls = {"a": [first, tfds.download.Resource(url=second)], "b": {"c": plain, "again": plain}}
    made = prepared(builder(tmp_path, urls, extract=True))
    assert numbers(made) == [0, 1, 2, 3, 3]
    assert sorted(server.count.values()) == [1, 1, 1]


def test_manual_files_are_accepted(server, tmp_path):
    url = server.url("/n.txt")
    made = builder(tmp_path, url, records={url: NUMBERS})
    manual = tmp_path / "manual"
    manual.mkdir()
    (manual / "n.txt").write_bytes(NUMBERS)
    config = tfds.download.DownloadConfig(manual_dir=manual)
    made.download_and_prepare(download_config=config)
    assert numbers(made) == list(range(1000))
    assert not server.asked


def test_another_file_got_by_hand_is_an_error(server, tmp_path):
    url = server.url("/n.txt")
    made = builder(tmp_path, url, records={url: NUMBERS})
    (tmp_path / "n.txt").write_bytes(b"1\n")
    config = tfds.download.DownloadConfig(manual_dir=tmp_path)
    with pytest.raises(ChecksumError, match="differs from the recorded one"):
        made.download_and_prepare(download_config=config)


def test_a_changed_file_is_an_error_and_builds_nothing(server, tmp_path):
    url = server.put("/n.txt", NUMBERS + b"7\n")
    with pytest.raises(ChecksumError, match="my-datasets checksums downloading --update"):
        prepared(builder(tmp_path, url, records={url: NUMBERS}))
    assert not (tmp_path / "data/downloading/1.0.0").exists()


def test_mirrors_of_the_builder_and_of_the_user(server, tmp_path):
    url = server.url("/n.txt")
    server.put("/mirror/n.txt", NUMBERS)
    server.put("/mine/n.txt", NUMBERS)
    mirrors = {server.url("/"): [server.url("/mirror/")]}
    made = prepared(builder(tmp_path, url, records={url: NUMBERS}, mirrors=mirrors))
    assert numbers(made) == list(range(1000))
    assert [path for path, _ in server.asked] == ["/n.txt", "/mirror/n.txt"]
    server.asked.clear()
    again = builder(tmp_path, url, mirrors=mirrors, at=tmp_path / "other")
    prepared(again, mirrors={url: [server.url("/mine/n.txt")]})
    assert [path for path, _ in server.asked] == ["/mine/n.txt"]


def test_checksums_are_registered_as_with_tfds(server, tmp_path):
    url = server.put("/n.txt", NUMBERS, drops=[1000])
    made = builder(tmp_path, url, records={})
    config = tfds.download.DownloadConfig(register_checksums=True)
    made.download_and_prepare(download_config=config)
    (info,) = made.url_infos.values()
    assert (int(info.size), info.filename) == (len(NUMBERS), "n.txt")
    assert server.count["/n.txt"] == 2  # fetched by us: gone on with after the drop


def test_checksums_are_recorded_anew(server, tmp_path):
    url = server.put("/n.txt", NUMBERS)
    other = "https://example.org/embedded"
    made = builder(tmp_path, {"x": url}, records={url: b"old", other: b"kept"})
    found = made.record_checksums()
    assert {key: int(info.size) for key, info in found.items()} == {url: len(NUMBERS)}
    assert {key: int(info.size) for key, info in made.url_infos.items()} == {
        url: len(NUMBERS), other: 4,
    }  # fmt: skip
    assert made.got["x"].read_bytes() == NUMBERS
    prepared(made)  # from the cache
    assert server.count["/n.txt"] == 1


def test_what_was_got_before_a_failure_is_recorded(server, tmp_path):
    url = server.put("/n.txt", NUMBERS)
    made = builder(tmp_path, [url, server.url("/nothing")], records={})
    with pytest.raises(DownloadError, match="404"):
        made.record_checksums()
    assert list(made.url_infos) == [url]
