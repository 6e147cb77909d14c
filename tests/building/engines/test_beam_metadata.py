"""Builders that compute metadata on Beam, and those of TFDS's older kind, are taken as they are."""

import functools
import http.server
import io
import json
import tarfile
import threading
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from tensorflow_datasets.core import dataset_builder_beam_test as of_tfds
from tensorflow_datasets.datasets.nsynth import nsynth_dataset_builder as nsynth

import my_datasets
from my_datasets import errors
from my_datasets.builders.on_beam import BeamMetadata
from my_datasets.building.engines.beam import generating, sorting
from my_datasets.building.engines.beam.build_files import BuildFiles
from my_datasets.building.engines.beam.workspace import SharedDirectory
from tests.building.engines.builds import build, hashes

pytestmark = pytest.mark.integration


def on_ours(cls: type, *, ours_first: bool = False) -> type:
    """The same builder, with this package's base class."""
    bases = (my_datasets.Builder, cls) if ours_first else (cls, my_datasets.Builder)
    return type(cls.__name__, bases, {"name": cls.name}, skip_registration=True)


@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize(
    "cls",
    [
        of_tfds.DummyBeamDataset,
        of_tfds.CommonPipelineDummyBeamDataset,
        of_tfds.UnshuffledDummyBeamDataset,
    ],
)
def test_tfds_own_tests_of_beam_builders_pass(tmp_path, cls, ours_first):
    ours = on_ours(cls, ours_first=ours_first)
    of_tfds.test_beam_datasets(tmp_path, ours, of_tfds.make_default_config)


@pytest.fixture
def nsynth_server(tmp_path, monkeypatch):
    """Serves notes as NSynth's authors do, from an address of this machine."""
    folder = tmp_path / "served"
    folder.mkdir()
    for number, split in enumerate(nsynth._SPLITS):
        record = tmp_path / f"{split}.tfrecord"
        with tf.io.TFRecordWriter(str(record)) as writer:
            for i in range(3 + number):
                writer.write(note(f"{split}-{i}", i).SerializeToString())
        with tarfile.open(folder / f"nsynth-{split}.tfrecord.tar", "w") as tar:
            tar.add(record, record.name)
    (folder / "nsynth-instrument_labels.txt").write_text(
        "\n".join(f"bass_{i}" for i in range(1006))
    )
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/nsynth-"
    monkeypatch.setattr(nsynth, "_BASE_DOWNLOAD_PATH", url)
    yield
    server.shutdown()


def note(name: str, i: int) -> Any:
    def integers(*values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def text(value):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))

    audio = np.linspace(0, i, nsynth._NUM_SECS * nsynth._AUDIO_RATE)
    features = {
        "note_str": text(name),
        "audio": tf.train.Feature(float_list=tf.train.FloatList(value=audio)),
        "pitch": integers(60 + i), "velocity": integers(100),
        "instrument_str": text(f"bass_{i % 2}"), "instrument_family_str": text("bass"),
        "instrument_source_str": text("acoustic"),
        "qualities": integers(*([0, 1] * 5)),
    }  # fmt: skip
    return tf.train.Example(features=tf.train.Features(feature=features))


def test_nsynth_is_built_as_tfds_builds_it(tmp_path, nsynth_server):
    """The builder of TFDS as it is: `_build_pcollection(pipeline, ...)` and Beam metadata."""
    found = []
    for cls in (nsynth.Builder, on_ours(nsynth.Builder)):
        builder = cls(data_dir=tmp_path / cls.__module__, config="full")
        builder.download_and_prepare()
        reader = tfds.builder_from_directory(builder.data_dir)
        splits = {
            split: [one["id"] for one in reader.as_dataset(split=split).as_numpy_iterator()]
            for split in nsynth._SPLITS
        }
        first = next(iter(reader.as_dataset(split="test").as_numpy_iterator()))
        said = json.loads((Path(builder.data_dir) / "metadata.json").read_text())
        found.append((splits, first, said, dict(builder.info.metadata)))
    (splits, first, *said), (our_splits, our_first, *our_said) = found
    assert our_splits == splits
    assert {split: len(ids) for split, ids in splits.items()} == {"train": 3, "valid": 4, "test": 5}
    tf.nest.map_structure(np.testing.assert_array_equal, our_first, first)
    assert our_said == said == [{"sample_rate": 16000}] * 2


class Summed(my_datasets.Builder, skip_registration=True):
    """Of TFDS's older kind but for its base class; each split records a sum."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "First."}
    name = "toy_summed"
    values: ClassVar[Any] = beam.CombineGlobally(sum)
    results: ClassVar[list[Any]] = []

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict({"n": np.int64}),
            metadata=tfds.core.BeamMetadataDict(rows=30),
        )

    def _split_generators(self, dl_manager):
        return [
            tfds.core.SplitGenerator(name=name, gen_kwargs={"name": name, "n": n})
            for name, n in (("train", 20), ("test", 10))
        ]

    def _build_pcollection(self, pipeline, name, n):
        numbers = pipeline | beam.Create(range(n))
        self.info.metadata[f"sum of {name}"] = numbers | self.values
        return numbers | beam.Map(lambda i: (i, {"n": i}))

    def _process_pipeline_result(self, pipeline_result):
        self.results.append(pipeline_result)


class SummedOfPipeline(Summed, skip_registration=True):
    """Records a sum of what both splits are made from."""

    name = "toy_summed"

    def _split_generators(self, dl_manager, pipeline):
        numbers = pipeline | beam.Create(range(20))
        self.info.metadata["sum of train"] = numbers | "train" >> self.values
        some = numbers | beam.Filter(lambda i: i < 10)
        self.info.metadata["sum of test"] = some | "test" >> self.values
        return {
            "train": numbers | "of train" >> beam.Map(lambda i: (i, {"n": i})),
            "test": some | "of test" >> beam.Map(lambda i: (i, {"n": i})),
        }


class SummedBesideUnits(Summed, skip_registration=True):
    """Takes a pipeline for its metadata only."""

    name = "toy_summed"

    def _split_generators(self, dl_manager, pipeline):
        numbers = pipeline | beam.Create(range(20))
        self.info.metadata["sum of train"] = numbers | "train" >> self.values
        some = numbers | beam.Filter(lambda i: i < 10)
        self.info.metadata["sum of test"] = some | "test" >> self.values
        return {"train": self.units(self._numbers, [20]), "test": self._numbers(10)}

    def _numbers(self, n):
        for i in range(n):
            yield i, {"n": i}


SUMS = {"rows": 30, "sum of train": 190, "sum of test": 45}


def sums(version_dir: Path) -> Any:
    return json.loads((version_dir / "metadata.json").read_text())


class Stop(Exception):
    """The build ends here."""


def stop(*_: Any) -> None:
    raise Stop


@pytest.mark.parametrize("cls", [Summed, SummedOfPipeline, SummedBesideUnits])
@pytest.mark.parametrize(
    ("module", "function"),
    [(sorting, "sort"), (generating, "commit_metadata")],
    ids=["after the pipeline", "before the metadata are complete"],
)
def test_metadata_of_a_build_that_was_interrupted_are_there(tmp_path, cls, module, function):
    """The pipeline that computes them is not run again, or is run again whole."""
    whole = build(cls, tmp_path / "whole")
    assert sums(whole) == SUMS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, function, stop)
        with pytest.raises(Stop):
            build(cls, tmp_path / "stopped")
    resumed = build(cls, tmp_path / "stopped")
    assert sums(resumed) == SUMS
    assert hashes(resumed) == hashes(whole)


@pytest.mark.parametrize("cls", [Summed, SummedOfPipeline])
def test_a_split_that_is_made_again_keeps_the_metadata_of_the_others(tmp_path, cls, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sorting, "sort", stop)
        with pytest.raises(Stop):
            build(cls, tmp_path)
    original = generating._is_left
    again = lambda driver, item: item.name == "test" or original(driver, item)  # noqa: E731
    monkeypatch.setattr(generating, "_is_left", again)
    assert sums(build(cls, tmp_path)) == SUMS


def test_the_builder_is_given_the_result_of_its_pipeline(tmp_path, monkeypatch):
    monkeypatch.setattr(Summed, "results", [])
    build(Summed, tmp_path)
    (result,) = Summed.results
    assert result.metrics().query() is not None


def test_workers_of_a_cluster_compute_metadata(tmp_path, dask_in_process):
    options = {"runner": "dask", "dask_client_address": dask_in_process}
    assert sums(build(Summed, tmp_path, beam_options=options)) == SUMS


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (beam.Filter(lambda i: i < 2), "has 2 elements"),
        (beam.CombineGlobally(lambda values: sum(values) + 0j), "which cannot be saved as JSON"),
    ],
)
def test_metadata_that_cannot_be_saved_are_an_error(tmp_path, monkeypatch, values, said):
    monkeypatch.setattr(Summed, "values", values)
    with pytest.raises(errors.BuilderError, match=said):
        build(Summed, tmp_path)


def test_no_metadata_are_set_twice():
    found = BeamMetadata({"rows": 30})
    with pytest.raises(ValueError, match="'rows' is set twice"):
        found["rows"] = beam.Pipeline() | beam.Create([1])


def test_metadata_that_no_worker_wrote_are_missed(tmp_path):
    """As where a runner says that a pipeline is done, and its machine had lost the files."""
    work = BuildFiles(SharedDirectory(tmp_path))
    work.place.begin()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        lists = pipeline | beam.Create([[30]])
        generating.add_metadata(work, {"rows": lists})
    with pytest.raises(errors.LostExamplesError, match="ended without the metadata 'mean'"):
        generating.commit_metadata(work, ["rows", "mean"])
    assert generating.read_metadata(work) is None
    generating.commit_metadata(work, ["rows"])
    assert generating.read_metadata(work) == {"rows": 30}


class SavedOnce(tfds.core.MetadataDict):
    """Whose saving consumes something, as that of TFDS's for Beam does."""

    def __init__(self) -> None:
        super().__init__(a=1)
        self.file = io.StringIO("b")

    def save_metadata(self, data_dir):
        self["b"] = self.file.read()
        self.file.close()
        super().save_metadata(data_dir)


def test_metadata_are_saved_once(tmp_path, monkeypatch):
    original = Summed._info

    def info(self):
        made = original(self)
        made._metadata = SavedOnce()
        return made

    monkeypatch.setattr(Summed, "_info", info)
    monkeypatch.setattr(
        Summed, "_build_pcollection", lambda self, pipeline, name, n: (
            pipeline | beam.Create(range(n)) | beam.Map(lambda i: (i, {"n": i}))
        ),
    )  # fmt: skip
    assert sums(build(Summed, tmp_path)) == {"a": 1, "b": "b"}
