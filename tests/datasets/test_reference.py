"""The reference datasets that are downloaded: through the real path, from a server on loopback."""

import csv
import gzip
import hashlib
import io
import json

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums

import my_datasets
from my_datasets.building.options import BuildOptions
from my_datasets.comparison.diff import diff
from my_datasets.core.version import Bump, ChangeKind
from my_datasets.datasets.cats_and_dogs import cats_and_dogs_dataset_builder
from my_datasets.datasets.collider_events import collider_events_dataset_builder
from my_datasets.datasets.movie_sentiment import movie_sentiment_dataset_builder
from my_datasets.datasets.penguins_study import penguins_study_dataset_builder
from my_datasets.datasets.spoken_numbers import spoken_numbers_dataset_builder
from my_datasets.errors import QuarantineError, SourceError
from tests.datasets import archives
from tests.downloads.server import serving


class SpokenNumbersTest(my_datasets.testing.BuilderTestCase):
    DATASET_CLASS = spoken_numbers_dataset_builder.Builder
    DL_DOWNLOAD_RESULT = "free-spoken-digit-dataset-1.0.9.tar.gz"
    SPLITS = {"train": 16, "validation": 4, "test": 4}


class MovieSentimentTest(my_datasets.testing.BuilderTestCase):
    DATASET_CLASS = movie_sentiment_dataset_builder.Builder
    DL_DOWNLOAD_RESULT = "aclImdb_v1.tar.gz"
    SPLITS = {"train": 8, "test": 6, "unlabelled": 3}


class CatsAndDogsTest(my_datasets.testing.BuilderTestCase):
    DATASET_CLASS = cats_and_dogs_dataset_builder.Builder
    DL_DOWNLOAD_RESULT = "kagglecatsanddogs_5340.zip"
    SPLITS = {"train": 8}


class ColliderEventsTest(my_datasets.testing.BuilderTestCase):
    DATASET_CLASS = collider_events_dataset_builder.Builder
    DL_DOWNLOAD_RESULT = "HIGGS.csv.gz"
    SPLITS = {"train": 18, "test": 2}


class PenguinsStudyTest(my_datasets.testing.BuilderTestCase):
    DATASET_CLASS = penguins_study_dataset_builder.Builder
    DL_DOWNLOAD_RESULT = "penguins_size.csv"
    SPLITS = {"train": 11}


@pytest.fixture
def source(monkeypatch, tmp_path):
    """Returns a function that serves bytes in place of a dataset's download, and builds it."""
    with serving() as server:

        def build(cls, body, *, drops=(), **options):
            ((url, info),) = cls.url_infos.items()
            served = checksums.UrlInfo(
                size=tfds.core.utils.Size(len(body)),
                checksum=hashlib.sha256(body).hexdigest(),
                filename=info.filename,
            )
            monkeypatch.setattr(cls, "url_infos", {url: served})
            mirror = server.put(f"/{info.filename}", body, drops=list(drops))
            how = {"mirrors": {url: [mirror]}, **options.pop("how", {})}
            builder = cls(data_dir=tmp_path, **options)
            builder.download_and_prepare(build_options=BuildOptions(workers=2, **how))
            return tfds.builder_from_directory(builder.data_dir)  # as TFDS alone reads it

        yield build


def examples(builder, split="train"):
    return [*tfds.as_numpy(builder.as_dataset(split=split))]


def test_spoken_numbers(source):
    body = archives.spoken_numbers(digits=10, takes=3)
    builder = source(spoken_numbers_dataset_builder.Builder, body, drops=[1000])
    heard = {}
    for split in builder.info.splits:
        found = examples(builder, split)
        heard[split] = {example["speaker"].decode() for example in found}
        assert len(found) == 30 * len(heard[split])
        assert {int(example["label"]) for example in found} == set(range(10))
    assert heard["train"] == {"george", "jackson", "lucas", "nicolas"}
    assert not (heard["train"] & heard["test"]) | (heard["validation"] & heard["test"])
    example = examples(builder, "test")[0]
    assert example["audio"].dtype == np.int16
    assert len(example["audio"]) == 400 + 10 * example["take"]


def test_movie_sentiment(source):
    body = archives.movie_sentiment(each=40)
    builder = source(movie_sentiment_dataset_builder.Builder, body)
    train = examples(builder)
    assert len(train) == 82
    for example in train:
        said = example["text"].decode()
        if "number" in said:
            assert said.startswith(f"train {['neg', 'pos'][example['label']]} number")
            assert example["rating"] == (9 if example["label"] else 2)
    texts = {example["text"].decode(): int(example["rating"]) for example in train}
    assert (texts["Marked."], texts["Am\xe9lie."]) == (10, 7)
    unlabelled = examples(builder, "unlabelled")
    assert {(int(e["label"]), int(e["rating"])) for e in unlabelled} == {(-1, 0)}
    assert len(examples(builder, "test")) == 80


@pytest.mark.parametrize("config", ["full", "resized_256"])
def test_cats_and_dogs(source, config):
    """What is empty, no image or cut off is set aside, with the reason."""
    body = archives.cats_and_dogs(each=30, size=(400, 300))
    how = {"max_quarantined": 0.1}
    builder = source(cats_and_dogs_dataset_builder.Builder, body, config=config, how=how)
    found = examples(builder)
    assert len(found) == 62
    labels = {e["file_name"].decode(): int(e["label"]) for e in found}
    assert all((name.startswith("Dog/")) == bool(label) for name, label in labels.items())
    sizes = {example["image"].shape for example in found}
    assert sizes == {(300, 400, 3) if config == "full" else (256, 341, 3)}
    lines = (builder.data_path / "quarantine.jsonl").read_text().splitlines()
    aside = {line["key"]: line["found"] for line in map(json.loads, lines)}
    assert sorted(aside) == [
        "Cat/10404.jpg", "Cat/666.jpg", "Dog/11702.jpg", "Dog/9500.jpg", "Dog/9501.jpg"
    ]  # fmt: skip
    assert aside["Cat/666.jpg"] == "an empty file"
    assert aside["Cat/10404.jpg"] == "a GIF file"


def test_too_many_damaged_photographs_are_an_error(source):
    with pytest.raises(QuarantineError, match="5 of 13 examples"):
        source(cats_and_dogs_dataset_builder.Builder, archives.cats_and_dogs())


def test_collider_events(source, monkeypatch):
    module = collider_events_dataset_builder
    monkeypatch.setattr(module, "_BLOCK", 100_000)
    body = archives.collider_events(rows=5000)
    builder = source(module.Builder, body)
    numbers = np.loadtxt(io.BytesIO(gzip.decompress(body)), delimiter=",", dtype=np.float32)
    names = ["label", *module._NUMBERS]
    for split, rows in (("train", numbers[:4500]), ("test", numbers[4500:])):
        found = [tuple(np.float32(e[name]) for name in names) for e in examples(builder, split)]
        assert sorted(found) == sorted(map(tuple, rows))


def test_a_file_of_collider_events_that_is_too_short(source, monkeypatch):
    monkeypatch.setattr(collider_events_dataset_builder, "_SMALL", 0)
    monkeypatch.setattr(collider_events_dataset_builder, "_ROWS", 100)
    monkeypatch.setattr(collider_events_dataset_builder, "_TEST_ROWS", 10)
    with pytest.raises(SourceError, match="ends too early"):
        source(collider_events_dataset_builder.Builder, archives.collider_events(rows=20))


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0"])
def test_penguins_study(source, version):
    body = archives.penguins_study(rows=30)
    builder = source(penguins_study_dataset_builder.Builder, body, version=version)
    assert ("sex" in builder.info.features) == (version == "1.1.0")
    data = examples(builder)
    assert len(data) == 32
    assert sum(example["body_mass_g"] < 0 for example in data) == 1  # as the README says
    if version == "1.1.0":
        sexes = [example["sex"] for example in data if example["sex"]]
        assert len(sexes) == 30
        assert set(sexes) == {b"MALE", b"FEMALE"}


@pytest.mark.parametrize("order", [("1.0.0", "1.1.0"), ("1.1.0", "1.0.0")], ids="-".join)
def test_both_versions_of_penguins_study_side_by_side(source, tmp_path, order):
    """Today's code builds them, in either order; all that both have is the same in both."""
    body = archives.penguins_study(rows=30)
    for version in order:
        source(penguins_study_dataset_builder.Builder, body, version=version)
    folder = tmp_path / "penguins_study"
    assert sorted(path.name for path in folder.glob("[0-9]*")) == ["1.0.0", "1.1.0"]

    rows = list(csv.DictReader(io.StringIO(body.decode())))
    for version, has_sex in (("1.0.0", False), ("1.1.0", True)):
        plain = tfds.builder_from_directory(folder / version)
        labels = plain.info.features["species"]
        ours = my_datasets.source(f"penguins_study:{version}", data_dir=tmp_path)
        _, info = my_datasets.load(
            f"penguins_study:{version[:3]}.*", data_dir=tmp_path, with_info=True, download=False
        )
        assert str(info.version) == version
        found = [
            (
                labels.int2str(example["species"]),
                int(example["body_mass_g"]) if example["body_mass_g"] >= 0 else "NA",
                example["sex"].decode() or "-" if has_sex else None,
            )
            for example in examples(plain)
        ]
        expected = [
            (
                row["species"],
                int(row["body_mass_g"]) if row["body_mass_g"] != "NA" else "NA",
                row["sex"].replace("NA", "-").replace(".", "-") if has_sex else None,
            )
            for row in rows
        ]
        assert sorted(map(str, found)) == sorted(map(str, expected))
        assert len(ours) == len(rows)
        assert ("sex" in ours[0]) == has_sex

    newest = my_datasets.source("penguins_study:1.*.*", data_dir=tmp_path)
    assert newest.name == "penguins_study:1.1.0"
    changed = diff(folder / "1.0.0", folder / "1.1.0")
    assert [(one.kind, one.node) for one in changed.changes if one.bump is Bump.MINOR] == [
        (ChangeKind.FEATURE_ADDED, "feature sex")
    ]
    assert (changed.required, changed.actual, changed.is_enough) == (Bump.MINOR, Bump.MINOR, True)


def test_the_real_downloads_are_those_that_tfds_knows():
    """TFDS records the same files: sizes and checksums are its own."""
    here = tfds.core.utils.tfds_path()
    known = {}
    for path in [*here.glob("url_checksums/*.txt"), *here.glob("datasets/*/checksums.tsv")]:
        known |= checksums.load_url_infos(path)
    ours = {}
    for module in (
        cats_and_dogs_dataset_builder, spoken_numbers_dataset_builder,
        movie_sentiment_dataset_builder, collider_events_dataset_builder,
        penguins_study_dataset_builder,
    ):  # fmt: skip
        ours |= module.Builder.url_infos
    assert len(ours) == 5
    for url, info in ours.items():
        assert known[url] == info, url
