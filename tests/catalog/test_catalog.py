"""The catalogue: what is in a store, and nothing else, on pages in which nothing runs."""

import contextlib
import http.client
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from my_datasets import errors
from my_datasets.catalog import first_records, releases
from my_datasets.catalog.releases import VersionComparer, collect
from my_datasets.catalog.site import MARKER, Site, plain, write
from my_datasets.cli.main import cli
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signing import Signer
from tests.catalog.markup import HOSTILE, Page, require_harmless
from tests.publishing.web import serving
from tests.waiting import LONGEST_SECONDS

NAMES = ("hostile", "shapes", "stories", "tones", "weights")


def require_site_page(text: str) -> Page:
    """Fails if anything runs but our own script; what is said to machines is JSON."""
    count = Page(text).tags.count("script")
    page = require_harmless(text, scripts=count)
    ours, *others = sorted(page.scripts, key=len)
    assert ours == ""
    for one in others:
        assert json.loads(one)["@type"] == "Dataset"
    kinds = [value for tag, name, value in page.attributes if (tag, name) == ("script", "type")]
    assert kinds == ["application/ld+json"] * len(others)
    return page


def pages_of(directory: Path) -> dict[str, Page]:
    found = {}
    for path in sorted(directory.rglob("index.html")):
        if path.is_dir():
            continue
        name = path.relative_to(directory).parent.as_posix()
        page = require_site_page(path.read_text("utf-8"))
        for address in [*page.values("src"), *page.values("href")]:
            if "://" not in address and not address.startswith("#"):
                assert (path.parent / address).resolve().is_file(), (name, address)
        found[name] = page
    return found


@pytest.fixture(scope="module")
def site(data_dir, tmp_path_factory):
    directory = tmp_path_factory.mktemp("site") / "of_data"
    done = write(collect(data_dir), directory, comparing=VersionComparer(None, workers=1))
    assert done.problems == {}
    assert (done.datasets, done.versions) == (5, 7)
    return directory


@pytest.fixture(scope="module")
def pages(site):
    return pages_of(site)


def test_the_index_names_each_dataset(pages):
    index = pages["."]
    assert index.values("data-name") == list(NAMES)
    assert index.values("data-kind")[1:] == ["image", "text", "audio", "table"]
    assert index.values("data-licence")[1:] == ["CC BY 4.0", "not declared", "CC0 1.0", "CC BY 4.0"]
    assert "Circles and squares on a ground of two colours" in index.text
    assert "2.0.0 of 3 versions" in index.text
    assert "Features: image, objects/bbox, objects/label" in index.text
    assert "Classes: circle, square" in index.text


def test_a_page_has_all_that_is_known(pages, data_dir):
    page = pages["datasets/weights"]
    manifest = Manifest.read(data_dir / "weights" / "2.0.0")
    shards = [one for split in manifest.content.splits.values() for one in split.shards]
    for said in (
        "weights", "200 examples", "CC BY 4.0", "What animals weigh.", "@misc{made", "3 classes",
        "cat, dog, eel", "https://example.org/data", "160", manifest.content.digest,
        "my-datasets build weights:2.0.0", "none: the version is not published",
        *(one.sha256 for one in shards),
    ):  # fmt: skip
        assert said in page.text, said
    assert page.tags.count("svg") > 4


def test_what_a_page_says_is_said_once(pages):
    """What the builder says is no more than the words at the top of the page."""
    assert pages["datasets/weights"].text.count("What animals weigh.") == 1
    assert pages["datasets/shapes"].text.count("Circles and squares on a ground") == 2
    assert "By a program" in pages["datasets/shapes"].text


def test_changes_are_those_that_were_found(pages):
    text = " ".join(pages["datasets/weights"].text.split())
    first = text.index("Found by comparison with 1.1.0")
    second = text.index("Found by comparison with 1.0.0")
    assert "major examples changed split train" in text[first:second]
    assert "values of weight in train" in text[first:second]
    assert "minor feature added feature height" in text[second:]
    assert "Weights in grams" in text[:first]


def test_pictures_have_their_boxes(pages, site):
    page = pages["datasets/shapes"]
    pictures = [one for one in page.values("src") if one.startswith("samples/")]
    assert len(pictures) == 12
    drawn = [label for label in page.values("aria-label") if " marked: " in label]
    assert len(drawn) == 12
    assert all(set(one.partition(": ")[2].split(", ")) <= {"circle", "square"} for one in drawn)
    from PIL import Image

    with Image.open(site / "datasets/shapes" / pictures[0]) as image:
        assert image.format == "WEBP"
        assert image.width == 240


def test_sounds_are_files_that_play(pages, site, data_dir):
    import wave

    import numpy as np

    from my_datasets.input_pipeline.read.source import source

    page = pages["datasets/tones"]
    sounds = [one for one in page.values("src") if one.endswith(".wav")]
    assert len(sounds) == 6
    expected = source(data_dir / "tones" / "1.0.0", split="train")[0]["audio"]
    with wave.open(str(site / "datasets/tones" / sounds[0])) as file:
        assert (file.getframerate(), file.getnchannels()) == (8000, 1)
        found = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert np.abs(found - expected).max() <= 1


def test_long_texts_are_folded(pages, data_dir):
    from my_datasets.input_pipeline.read.source import source

    page = pages["datasets/stories"]
    texts = [one["text"].decode() for one in source(data_dir / "stories" / "1.0.0")[:10]]
    assert any(len(text) > 160 for text in texts)
    assert all(text in page.text for text in texts)
    assert page.tags.count("details") >= sum(len(text) > 160 for text in texts)


def test_nothing_that_is_hostile_becomes_markup(pages):
    page = pages["datasets/hostile"]
    for text in HOSTILE[:6]:
        assert text in page.text, text
    assert "49" not in page.text.split()
    assert "evil.example" not in " ".join(page.values("src"))


def test_mlcroissant_validates_and_loads(site, data_dir, pages):
    import mlcroissant as mlc
    import numpy as np

    from my_datasets.input_pipeline.read.source import source

    for name in NAMES:
        found = mlc.Dataset(str(site / "datasets" / name / "croissant.json"))
        assert not found.metadata.issues.errors
        assert found.metadata.name == name
        assert "croissant.json" in pages[f"datasets/{name}"].values("href")
        version = sorted((data_dir / name).iterdir())[-1]
        assert {one.name: one.sha256 for one in found.metadata.file_objects} == {
            one.name: one.sha256
            for split in Manifest.read(version).content.splits.values()
            for one in split.shards
        }
        records = list(found.records("examples"))
        expected = source(version)[: len(records)]
        assert len(records) == min(20, len(source(version)))
        for mine, theirs in zip(records, expected, strict=True):
            for feature in {*theirs} - {"objects"}:
                given = mine[f"examples/{feature}"]
                np.testing.assert_array_equal(np.array(given), theirs[feature])


def test_search_engines_find_descriptions(pages):
    (said,) = [json.loads(one) for one in pages["datasets/weights"].scripts if one]
    assert said["name"] == "weights"
    assert said["license"] == "CC BY 4.0"
    assert said["version"] == "2.0.0"
    (said,) = [json.loads(one) for one in pages["datasets/hostile"].scripts if one]
    assert said["license"] == HOSTILE[0]


def test_the_same_again_writes_nothing(site, data_dir):
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    write(collect(data_dir), site, comparing=VersionComparer(None, workers=1))
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before


def test_releases_with_their_signatures(published, tmp_path):
    found = collect(published.store, keys=published.keys, memory=RollbackState(published.memory))
    assert found.is_store
    write(found, tmp_path / "site", comparing=VersionComparer(tmp_path / "cache", workers=1))
    pages = pages_of(tmp_path / "site")
    page = pages["datasets/weights"]
    text = " ".join(page.text.split())
    assert "signed, verified" in text
    assert f"by {published.signer.fingerprint}, verified" in text
    assert "withdrawn" in text
    assert "Heights are <b>wrong</b>." in text
    assert f"mds.pull('weights:2.0.0', '{published.store}')" in text
    (weights,) = [one for one in found.datasets if one.name == "weights"]
    assert [str(one.version) for one in weights.versions] == ["2.0.0", "1.1.0", "1.0.0"]
    assert all(one.record in page.text for one in weights.versions[:1])
    # What was compared is not compared again.
    kept = sorted((tmp_path / "cache").iterdir())
    assert len(kept) == 2
    for one in kept:
        one.write_text(one.read_text().replace("height", "HEIGHT"))
    write(found, tmp_path / "site", comparing=VersionComparer(tmp_path / "cache", workers=1))
    assert "HEIGHT" in (tmp_path / "site/datasets/weights/index.html").read_text()


def test_signatures_of_others_are_refused(published, tmp_path):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    other = Signer(Ed25519PrivateKey.generate())
    with pytest.raises(errors.SignatureError, match="not signed by a trusted key"):
        collect(published.store, keys=other.public, memory=RollbackState(tmp_path))


def test_a_store_elsewhere(published, tmp_path):
    """Metadata and one shard of each dataset come here, once; nothing else is read."""
    with serving(published.store) as (url, asked):
        found = collect(url, cache=tmp_path / "cache")
        assert not [one for one in asked if "weights-test" in one[1] or "-00001-of" in one[1]]
    done = write(found, tmp_path / "site", comparing=VersionComparer(tmp_path / "diffs"))
    assert done.problems == {}
    pages = pages_of(tmp_path / "site")
    page = pages["datasets/weights"]
    assert "animal 39" in page.text
    assert "not verified here" in page.text
    assert "were not compared" in page.text
    assert len([one for one in pages["datasets/shapes"].values("src") if "samples" in one]) == 12
    with serving(published.store) as (url, asked):
        collect(url, cache=tmp_path / "cache")
        assert {one[1].rpartition("/")[2] for one in asked} <= {
            "store.json", "my_datasets_release.json", *(f"{name}.json" for name in NAMES)
        }  # fmt: skip


def test_large_examples_stay_elsewhere(published, tmp_path, monkeypatch):
    monkeypatch.setattr(releases, "SMALL_SHARD_BYTES", 100)
    monkeypatch.setattr(first_records, "MOST_FETCHED", 100)
    with serving(published.store) as (url, asked):
        found = collect(url, cache=tmp_path / "cache")
        assert not [one for one in asked if "tfrecord" in one[1]]
    write(found, tmp_path / "site")
    page = pages_of(tmp_path / "site")["datasets/weights"]
    assert "Its examples are not shown: more than 100 B of the file" in page.text
    assert page.tags.count("svg") > 4


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_shard_that_was_altered_is_not_shown(published, tmp_path, is_elsewhere):
    store = tmp_path / "store"
    shutil.copytree(published.store, store)
    shard = next(store.glob("stories/1.0.0/*-train.*-of-00001"))
    shard.write_bytes(shard.read_bytes().replace(b"upon", b"open"))
    with serving(store) as (url, _):
        found = collect(url if is_elsewhere else store, cache=tmp_path / "cache")
    done = write(found, tmp_path / "site")
    assert done.problems == {}
    text = pages_of(tmp_path / "site")["datasets/stories"].text
    assert "Once open a time" not in text
    assert "Its examples are not shown: " in text
    assert "is not what was published" in text


@pytest.mark.parametrize(
    "name", ["dataset_info.json", "my_datasets_manifest.json", "features.json"]
)
def test_unpublished_metadata_is_not_shown(published, tmp_path, name):
    """Also in a store on this machine: what is said to be signed is what was signed."""
    store = tmp_path / "store"
    shutil.copytree(published.store, store)
    file = store / "tones/1.0.0" / name
    file.write_text(file.read_text() + " ")
    found = collect(store, keys=published.keys, memory=RollbackState(tmp_path / "memory"))
    done = write(found, tmp_path / "site")
    assert set(done.problems) == {"tones"}
    assert f"{name} in {store} is not what was published" in done.problems["tones"]


def test_metadata_that_were_altered_are_not_shown(published, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(published.store, store)
    record = store / "tones" / "1.0.0" / "my_datasets_release.json"
    record.write_text(record.read_text().replace("tones", "bones"))
    done = write(collect(store), tmp_path / "site")
    assert set(done.problems) == {"tones"}
    page = pages_of(tmp_path / "site")["datasets/tones"]
    assert "This version cannot be shown" in page.text
    assert "not what was published" in page.text


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "null", "{", '{"name": 3}', '{"name": "tones", "version": "1.0.0", "splits": 7}'],
)
def test_one_that_is_damaged_does_not_hide_the_others(data_dir, tmp_path, text):
    shutil.copytree(data_dir, tmp_path / "data")
    (tmp_path / "data/tones/1.0.0/dataset_info.json").write_text(text)
    done = write(collect(tmp_path / "data"), tmp_path / "site", comparing=VersionComparer(None))
    assert set(done.problems) == {"tones"}
    pages = pages_of(tmp_path / "site")
    assert "This version cannot be shown" in pages["datasets/tones"].text
    assert len(pages) == 6


def test_an_older_version_that_is_damaged_hides_nothing_else(data_dir, tmp_path):
    shutil.copytree(data_dir / "weights", tmp_path / "data/weights")
    (tmp_path / "data/weights/1.1.0/features.json").write_text('{"featuresDict": 7}')
    done = write(
        collect(tmp_path / "data"), tmp_path / "site", comparing=VersionComparer(None, workers=1)
    )
    assert done.problems == {}
    text = " ".join(pages_of(tmp_path / "site")["datasets/weights"].text.split())
    assert "The changes since 1.1.0 are unknown." in text
    assert "animal 39" in text


def test_statistics_that_are_none(data_dir, tmp_path):
    shutil.copytree(data_dir / "tones", tmp_path / "data/tones")
    version = tmp_path / "data/tones/1.0.0"
    import dataclasses

    made = Manifest.read(version)
    broken = {"train": {"examples": 3, "features": {"pitch": {"kind": "label"}}}}
    dataclasses.replace(made, statistics=broken).write(version)
    done = write(collect(tmp_path / "data"), tmp_path / "site")
    assert set(done.problems) == {"tones"}


@pytest.mark.parametrize(
    "name", [*HOSTILE[:3], "a..b", "a b", "ä" * 60, "con", "%2e%2e", "index.html"]
)
def test_names_that_no_dataset_has(data_dir, tmp_path, name):
    """Whoever can write into a data directory can call things as they like."""
    safe = name.replace("/", "|")
    version = tmp_path / "data" / safe / "1.0.0"
    shutil.copytree(data_dir / "weights/1.0.0", version)
    write(collect(tmp_path / "data"), tmp_path / "site")
    pages = pages_of(tmp_path / "site")
    assert len(pages) == 2
    (address,) = [one for one in pages["."].values("href") if one.startswith("datasets/")]
    assert address.isascii()


@pytest.mark.parametrize("name", ["digits", "a.b", "a-b+c", "A_1"])
def test_usual_names_stand_in_addresses(name):
    assert plain(name) == name


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a\\b", "", "-x", "a..b", "x" * 200, "a.", "é"])
def test_other_names_do_not(name):
    assert plain(name) == plain(name)
    assert plain(name) != plain(name + "x") != name
    assert "/" not in plain(name)
    assert "." not in plain(name)


def test_configs_have_pages_of_their_own(tmp_path):
    from tests.publishing.made import InConfigs, make

    for config in ("small", "large"):
        make(tmp_path / "data", base=InConfigs, config=config, size=64)
    found = collect(tmp_path / "data")
    assert [(one.config, one.is_default) for one in found.datasets] == [
        ("small", True), ("large", False)
    ]  # fmt: skip
    write(found, tmp_path / "site")
    pages = pages_of(tmp_path / "site")
    name = f"datasets/{InConfigs.name}"
    assert f"{name}/configs/large" in pages
    assert "1 other config" in pages["."].text
    assert f"{InConfigs.name}/small:1.0.0" in pages[name].text


def test_a_directory_with_something_else_is_left_alone(data_dir, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(errors.DataDirError, match="is not a catalog site"):
        write(collect(data_dir), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_pages_of_what_is_gone_go_and_nothing_else(data_dir, tmp_path):
    shutil.copytree(data_dir, tmp_path / "data")
    write(collect(tmp_path / "data"), tmp_path / "site")
    (tmp_path / "site/mine.txt").write_text("mine")
    shutil.rmtree(tmp_path / "data/tones")
    write(collect(tmp_path / "data"), tmp_path / "site")
    assert not (tmp_path / "site/datasets/tones").exists()
    assert (tmp_path / "site/mine.txt").is_file()


def test_no_file_outside_is_deleted(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "mine.txt").write_text("mine")
    outside = ["../mine.txt", str(tmp_path / "mine.txt"), "a/../../mine.txt", "", "..", 7]
    (site / MARKER).write_text(json.dumps({"files": outside}))
    made = Site(site)
    made.begin()
    made.finish()
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.faults
def test_what_is_killed_leaves_whole_pages(data_dir, tmp_path):
    site = tmp_path / "site"
    write(collect(data_dir), site)
    code = (
        "import sys; from pathlib import Path\n"
        "from my_datasets.catalog import releases\n"
        "from my_datasets.catalog.site import directory, render\n"
        "before = directory.Site.write\n"
        "def slow(self, path, contents):\n"
        "    before(self, path, contents)\n"
        "    print(path, flush=True)\n"
        "directory.Site.write = slow\n"
        f"render.write(releases.collect({str(data_dir)!r}), Path({str(site)!r}), title='Other')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    pages_of(site)
    write(collect(data_dir), site, title="Other")
    assert all("Other" in page.text for page in pages_of(site).values())
    assert not [path for path in site.rglob(".*") if path.is_file()]


def run(*arguments):
    return CliRunner().invoke(cli, [str(one) for one in arguments])


def test_the_command(data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path))
    done = run("catalog", "--from", data_dir, "--to", tmp_path / "site", "--title", "Ours",
               "--address", "gs://ours/data", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told == {"path": str(tmp_path / "site"), "datasets": 5, "versions": 7, "problems": {}}
    pages = pages_of(tmp_path / "site")
    assert "Ours" in pages["."].text
    assert "tfds.load('tones:1.0.0', data_dir='gs://ours/data'" in pages["datasets/tones"].text
    assert list((tmp_path / "cache/catalog/changes").iterdir())
    short = run("catalog", "--from", data_dir, "--to", tmp_path / "short", "--no-examples",
                "--no-changes")  # fmt: skip
    assert short.exit_code == 0, short.output
    assert not list((tmp_path / "short").rglob("*.wav"))
    assert run("catalog", "--from", data_dir).exit_code == 2
    missing = run("catalog", "--from", tmp_path / "nowhere", "--to", tmp_path / "site")
    assert isinstance(missing.exception, errors.DataDirNotFoundError)


def test_publishing_renews_it(data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path))
    store, site = tmp_path / "store", tmp_path / "site"
    first = run("publish", data_dir / "tones/1.0.0", "--to", store)
    assert first.exit_code == 0, first.output
    run("catalog", "--from", store, "--to", site, "--title", "Ours", "--address", "gs://ours")
    done = run("publish", data_dir / "weights/1.0.0", "--to", store, "--catalog", site)
    assert done.exit_code == 0, done.output
    pages = pages_of(site)
    assert set(pages) == {".", "datasets/tones", "datasets/weights"}
    # It is called what it was called before.
    assert "Ours" in pages["datasets/weights"].text
    assert "store='gs://ours'" in pages["datasets/weights"].text


def test_it_is_served_to_this_machine(data_dir):
    command = [Path(sys.executable).parent / "my-datasets", "catalog", "--from", data_dir,
               "--serve", "--port", "0", "--no-changes", "--no-examples"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = [process.stdout.readline() for _ in range(2)]
            port = int(lines[1].partition("http://127.0.0.1:")[2].partition("/")[0])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_SECONDS)
            connection.request("GET", "/datasets/tones/index.html")
            answer = connection.getresponse()
            assert answer.status == 200
            require_site_page(answer.read().decode())
            connection.close()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=LONGEST_SECONDS) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def test_code_on_pages_runs(published, pages, tmp_path, monkeypatch):
    """What is there to be copied, for a store and for a data directory."""
    found = collect(published.store, keys=published.keys, memory=RollbackState(published.memory))
    site = tmp_path / "site"
    write(found, site, with_samples=False)
    from my_datasets.catalog.dataset_page import snippets

    (tones,) = [one for one in found.datasets if one.name == "tones"]
    by_title = {
        one.title: one.code for one in snippets(found, tones, tones.shown, "train", has_sizes=False)
    }
    assert set(by_title) == {"TensorFlow", "JAX", "PyTorch", "TFDS alone", "Command line"}
    for code in by_title.values():
        assert code in Page((site / "datasets/tones/index.html").read_text()).text
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    exec(by_title["TFDS alone"], {})
