"""On Beam the same bytes come out as of the local engine, for whatever a builder gives."""

import json
import os
import subprocess
import sys
from typing import ClassVar

import apache_beam as beam
import pytest
import tensorflow_datasets as tfds
from apache_beam.options.pipeline_options import PipelineOptions

import my_datasets
from my_datasets import errors
from my_datasets.building.engines.beam import buckets, run_files, runners
from my_datasets.records import index
from tests.building.engines import beam_toys, toys
from tests.building.engines.builds import THREE_SHARDS, build, hashes, records, shards
from tests.conftest import ROOT

pytestmark = pytest.mark.integration


@pytest.fixture
def small(monkeypatch):
    """Many runs, buckets, blocks and pipelines of a few kilobytes each."""
    monkeypatch.setattr(run_files, "_BUFFER_SHARE", 2e-5)
    monkeypatch.setattr(buckets, "MOST_BYTES", 20_000)
    monkeypatch.setattr(buckets, "BLOCK_BYTES", 3_000)
    monkeypatch.setattr(runners.Submission, "at_once", lambda self, memory: 70_000)


@pytest.mark.parametrize("cls", [toys.InUnits, toys.Plain, toys.Columns])
def test_builders_of_units_and_generators_run_on_beam_as_they_are(reference, tmp_path, cls):
    assert hashes(build(cls, tmp_path, engine="beam")) == reference


@pytest.mark.parametrize("cls", [beam_toys.Transforms, beam_toys.OfPipeline, beam_toys.Mixed])
def test_collections_transforms_and_pipelines_give_the_same_bytes(reference, tmp_path, cls):
    assert hashes(build(cls, tmp_path)) == reference


@pytest.mark.parametrize("cls", [toys.InUnits, beam_toys.Transforms])
def test_bytes_do_not_depend_on_runs_buckets_blocks_and_pipelines(reference, tmp_path, small, cls):
    assert hashes(build(cls, tmp_path, engine="beam")) == reference


def test_the_manifest_and_all_that_is_in_the_directory_are_those_of_the_local_engine(tmp_path):
    local = build(toys.InUnits, tmp_path / "local", workers=1)
    on_beam = build(toys.InUnits, tmp_path / "beam", engine="beam")
    assert [path.name for path in sorted(on_beam.iterdir())] == [
        path.name for path in sorted(local.iterdir())
    ]
    one, other = (
        json.loads((place / "my_datasets_manifest.json").read_text()) for place in (local, on_beam)
    )
    for member in ("content", "files", "metadata_copy"):
        assert one[member] == other[member]
    assert len(one["files"]) == 2 * len(shards(local))
    for shard in shards(on_beam):
        assert index.read(shard).tolist() == index.scan(shard).tolist()
    assert [path.name for path in sorted(on_beam.parent.iterdir())] == [".1.0.0.lock", "1.0.0"]


@pytest.mark.parametrize("how", ["options", "runner"])
def test_what_tfds_takes_for_beam_leads_there(reference, tmp_path, steer, how):
    """Beam's in-process runner generates here; two local workers would be other processes."""
    here = set()
    steer(lambda unit, i: here.add(unit))
    config = tfds.download.DownloadConfig(
        num_shards=3,
        beam_options=PipelineOptions(["--runner=FnApiRunner"]) if how == "options" else None,
        beam_runner=beam.runners.DirectRunner() if how == "runner" else None,
    )
    assert hashes(build(toys.InUnits, tmp_path, config=config, workers=2)) == reference
    assert len(here) == toys.UNITS + 1


@pytest.mark.parametrize("file_format", ["array_record", "parquet"])
def test_other_formats_have_the_same_bytes_too(tmp_path, file_format):
    local = build(toys.InUnits, tmp_path / "local", file_format=file_format, workers=1)
    on_beam = build(toys.InUnits, tmp_path / "beam", file_format=file_format, engine="beam")
    assert hashes(on_beam) == hashes(local)


_SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "limit", [399, 1000, *(pytest.param(n, marks=_SLOW) for n in (1, 400, 10**6))]
)
def test_a_sample_of_units_is_the_beginning(tmp_path, small, limit):
    config = tfds.download.DownloadConfig(max_examples_per_split=limit)
    local = build(toys.InUnits, tmp_path / "local", config=config, workers=1)
    on_beam = build(toys.InUnits, tmp_path / "beam", config=config, engine="beam")
    assert hashes(on_beam) == hashes(local)


@pytest.mark.parametrize("limit", [700, *(pytest.param(n, marks=_SLOW) for n in (1, 10**6))])
def test_a_sample_of_a_collection_is_the_beginning_of_its_order(tmp_path, small, limit):
    whole = records(build(toys.InUnits, tmp_path / "whole", workers=1))
    config = tfds.download.DownloadConfig(max_examples_per_split=limit, num_shards=1)
    sample = build(beam_toys.Transforms, tmp_path / "sample", config=config)
    assert records(sample) == whole[:limit]


@pytest.mark.parametrize("keys", ["texts", "ints"])
def test_unshuffled_units_keep_their_order(tmp_path, small, steer, keys):
    if keys == "ints":
        steer(lambda unit, i: (1000 * ((unit * 7) % 5) - i + 10_000 * unit, toys.row(unit, i)))
    local = build(toys.Ordered, tmp_path / "local", workers=1)
    on_beam = build(toys.Ordered, tmp_path / "beam", engine="beam")
    assert hashes(on_beam) == hashes(local)


@pytest.mark.parametrize(
    "keys",
    [
        [f"a long beginning of all keys {'x' * (i % 5)}{i:05d}" for i in range(3000)],
        [f"{i}" for i in range(3000)],
        ["ab", "ab\0", "a", "", "é", "b" * 15, "b" * 16, "b" * 17],
        [(i * 7919) % 3001 - 1500 for i in range(3000)],
    ],
    ids=["alike", "short", "edges", "ints"],
)
def test_an_unshuffled_collection_is_in_the_order_of_its_keys(tmp_path, small, monkeypatch, keys):
    monkeypatch.setattr(beam_toys.Given, "ordered", True)
    monkeypatch.setattr(beam_toys.Given, "pairs", [(key, {"n": i}) for i, key in enumerate(keys)])
    config = tfds.download.DownloadConfig(num_shards=3)
    found = records(build(beam_toys.Given, tmp_path, config=config))
    as_bytes = [key.encode() if isinstance(key, str) else key for key in keys]
    expected = [i for _, i in sorted((key, i) for i, key in enumerate(as_bytes))]
    assert [one.features.feature["n"].int64_list.value[0] for one in found] == expected


def test_unshuffled_keys_of_two_kinds_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(beam_toys.Given, "ordered", True)
    monkeypatch.setattr(beam_toys.Given, "pairs", [(1, {"n": 1}), ("a", {"n": 2})])
    with pytest.raises(errors.InvalidKeyError, match="either all keys are ints or none is"):
        build(beam_toys.Given, tmp_path, config=None)


def test_duplicate_keys_of_units_are_reported_with_both_places(tmp_path, small, steer):
    steer(lambda unit, i: ("twice", toys.row(unit, i)) if (unit, i) in {(1, 7), (4, 9)} else None)
    with pytest.raises(errors.DuplicateKeyError) as caught:
        build(toys.InUnits, tmp_path, engine="beam")
    with pytest.raises(errors.DuplicateKeyError) as local:
        build(toys.InUnits, tmp_path / "local", workers=1)
    assert str(caught.value) == str(local.value)
    assert not (tmp_path / "toy_engine/1.0.0").exists()


def test_duplicate_keys_of_a_collection_are_reported_with_the_key(tmp_path, monkeypatch):
    monkeypatch.setattr(
        beam_toys.Given, "pairs", [("a", {"n": 1}), ("b", {"n": 2}), ("a", {"n": 3})]
    )
    with pytest.raises(errors.DuplicateKeyError, match="Two examples have the key 'a'"):
        build(beam_toys.Given, tmp_path, config=None)


def test_of_duplicate_keys_the_first_can_be_kept(tmp_path, small, steer):
    steer(lambda unit, i: (f"key {i}", toys.row(unit, i)))
    config = tfds.download.DownloadConfig(num_shards=3, ignore_duplicates=True)
    local = build(toys.InUnits, tmp_path / "local", config=config, workers=1)
    on_beam = build(toys.InUnits, tmp_path / "beam", config=config, engine="beam")
    assert hashes(on_beam) == hashes(local)


def test_of_duplicate_keys_of_a_collection_the_same_one_is_kept_in_any_order(tmp_path, monkeypatch):
    pairs = [(f"{i % 50}", {"n": i}) for i in range(500)]
    config = tfds.download.DownloadConfig(num_shards=2, ignore_duplicates=True)
    found = []
    for order in (pairs, pairs[::-1]):
        monkeypatch.setattr(beam_toys.Given, "pairs", order)
        found.append(hashes(build(beam_toys.Given, tmp_path / str(len(found)), config=config)))
    assert found[0] == found[1]
    assert len(records(tmp_path / "0/toy_given/1.0.0")) == 50


@pytest.mark.parametrize("cls", [toys.InUnits, beam_toys.Given])
def test_examples_that_do_not_fit_are_set_aside(tmp_path, steer, monkeypatch, cls):
    steer(lambda unit, i: (f"{unit}-{i}", {**toys.row(unit, i), "n": "x"}) if i == 3 else None)
    pairs = [(f"{i}", {"n": "x" if i == 3 else i}) for i in range(400)]
    monkeypatch.setattr(beam_toys.Given, "pairs", pairs)
    with pytest.raises(errors.ExampleError, match="Feature: n"):
        build(cls, tmp_path, engine="beam")
    version_dir = build(cls, tmp_path, engine="beam", on_error="quarantine")
    lines = (version_dir / "quarantine.jsonl").read_text().splitlines()
    assert {json.loads(line)["feature"] for line in lines} == {"n"}
    if cls is toys.InUnits:
        local = build(cls, tmp_path / "local", workers=1, on_error="quarantine")
        assert (local / "quarantine.jsonl").read_text().splitlines() == lines
        assert hashes(version_dir) == hashes(local)


@pytest.mark.parametrize("cls", [beam_toys.Given, beam_toys.GivenPlainly])
def test_a_split_without_examples_is_refused(tmp_path, monkeypatch, cls):
    monkeypatch.setattr(beam_toys.Given, "pairs", [])
    with pytest.raises(errors.EmptySplitError, match="The split 'train' has no example"):
        build(cls, tmp_path, config=None, engine="beam")


def test_an_error_of_a_generator_is_reported_as_by_the_local_engine(tmp_path, steer):
    steer(toys.failing_at(3))
    with pytest.raises(errors.UnitError, match=r"Unit: 3 .*\n.*RuntimeError: stop"):
        build(toys.InUnits, tmp_path, engine="beam")


def test_only_some_splits(reference, tmp_path):
    version_dir = build(toys.InUnits, tmp_path, engine="beam", splits=("test",))
    expected = {name: found for name, found in reference.items() if "-test." in name}
    assert hashes(version_dir) == expected


def test_too_many_shards_are_refused(tmp_path):
    config = tfds.download.DownloadConfig(num_shards=500)
    with pytest.raises(errors.BuilderError, match="num_shards is 500, but split 'test' has"):
        build(toys.InUnits, tmp_path, config=config, engine="beam")


def test_overwriting_builds_beside(reference, tmp_path):
    first = build(toys.InUnits, tmp_path, engine="beam")
    modes = tfds.download.GenerateMode
    config = tfds.download.DownloadConfig(num_shards=3, download_mode=modes.REUSE_CACHE_IF_EXISTS)
    again = build(toys.InUnits, tmp_path, config=config, engine="beam")
    assert first == again
    assert hashes(again) == reference
    assert THREE_SHARDS.num_shards == 3


def test_builders_of_notebooks_go_to_workers_by_value(reference, tmp_path, dask_in_process):
    """A class that no worker could import, and that each of them makes anew more than once."""

    class OnlyHere(toys.InUnits, skip_registration=True):
        name = "toy_engine"

    options = {"runner": "dask", "dask_client_address": dask_in_process}
    found = build(OnlyHere, tmp_path, engine="beam", beam_options=options)
    assert hashes(found) == reference


def test_builds_of_one_process_do_not_mistake_each_others_units(reference, tmp_path):
    """One begins and ends while another one is between two of its units."""
    inner = []

    class Outer(toys.InUnits, skip_registration=True):
        name = "toy_engine"

        def _generate_examples(self, unit):
            if unit == 1:
                inner.append(build(toys.Columns, tmp_path / "inner", engine="beam"))
            yield from super()._generate_examples(unit)

    assert hashes(build(Outer, tmp_path / "outer", engine="beam")) == reference
    assert [hashes(one) for one in inner] == [reference]


def test_units_that_cannot_be_sent_to_workers_are_reported(tmp_path, dask_in_process):
    class OfGenerators(toys.InUnits, skip_registration=True):
        name = "toy_engine"

        def _split_generators(self, dl_manager):
            return {"train": self.units(self._generate_examples, [(n for n in range(3))])}

    options = {"runner": "dask", "dask_client_address": dask_in_process}
    with pytest.raises(errors.BuilderError, match=r"cannot be sent to workers\.\n.*TypeError"):
        build(OfGenerators, tmp_path, config=None, engine="beam", beam_options=options)


def test_a_builder_that_was_sent_by_value_stays_registered(tmp_path):
    class ToySentByValue(my_datasets.Builder):
        VERSION = tfds.core.Version("1.0.0")
        RELEASE_NOTES: ClassVar = {"1.0.0": "First."}

        def _info(self):
            features = tfds.features.FeaturesDict({"n": toys.np.int64})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self.units(self._generate_examples, [3])}

        def _generate_examples(self, count):
            yield from ((i, {"n": i}) for i in range(count))

    for place in ("a", "b"):
        build(ToySentByValue, tmp_path / place, config=None, engine="beam")
    assert tfds.builder_cls("toy_sent_by_value") is ToySentByValue
    assert tfds.load("toy_sent_by_value", split="train", data_dir=tmp_path / "a").cardinality() == 3


def test_a_builder_of_a_notebook_sees_its_globals_change(tmp_path):
    """What Beam pickles by value keeps the globals of then; within one process nothing is."""
    script = """
import my_datasets, tensorflow_datasets as tfds
from my_datasets.building.options import BuildOptions

class NotebookNumbers(my_datasets.Builder):
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First."}

    def _info(self):
        features = tfds.features.FeaturesDict({"n": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self.units(self._generate_examples, [0])}

    def _generate_examples(self, unit):
        yield from ((i, {"n": str(i)}) for i in range(COUNT))

for COUNT in (3, 5):
    builder = NotebookNumbers(data_dir=f"data{COUNT}")
    builder.download_and_prepare(build_options=BuildOptions(engine="beam"))
    assert builder.info.splits["train"].num_examples == COUNT
"""
    (tmp_path / "notebook.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "notebook.py"],
        check=False, cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
