"""A runner that loses, doubles or repeats: a build ends in the same bytes, or fails and says so."""

import json
import logging
import math
import time

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, execution

from my_datasets import errors
from my_datasets.building.engines.beam import buckets, build_files, generating, run_files, runners
from my_datasets.building.engines.beam.run_files import ChecksumTotals
from tests.building.engines import beam_toys, toys
from tests.building.engines.builds import build, hashes

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(toys._Toy, "rows", 40)
    monkeypatch.setattr(run_files, "_BUFFER_SHARE", 2e-6)
    monkeypatch.setattr(buckets, "MOST_BYTES", 3_000)
    monkeypatch.setattr(buckets, "BLOCK_BYTES", 1_000)
    logging.disable(logging.ERROR)  # Beam's own, of each failure that is wanted here
    yield
    logging.disable(logging.NOTSET)


class InOneBundle(toys._Toy, skip_registration=True):
    """A collection that is gathered where it is made: nothing of it can be lost before that."""

    name = "toy_engine"

    def _split_generators(self, dl_manager):
        units = beam.Create(list(range(toys.UNITS)), reshuffle=False)
        return {
            "train": units | beam.FlatMap(beam_toys._pairs, self.rows),
            "test": self.units(self._generate_examples, [99]),
        }


# A collection that is lost as a whole looks like an empty one.
NOTICED = (errors.LostExamplesError, errors.DuplicateKeyError, errors.EmptySplitError)


class Losing:
    """Makes the buffers between stages lose, or double, the n-th piece of data they are given."""

    def __init__(self, monkeypatch, kind, times):
        self.number, self.seen, self.times = None, 0, times
        original = kind.append

        def append(buffer, data):
            self.seen += 1
            for _ in range(self.times if self.seen - 1 == self.number else 1):
                original(buffer, data)

        monkeypatch.setattr(kind, "append", append)


@pytest.mark.parametrize("most", [2, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("times", [0, 2], ids=["lost", "doubled"])
@pytest.mark.parametrize("cls", [toys.InUnits, InOneBundle])
@pytest.mark.parametrize("kind", [execution.ListBuffer, execution.GroupingBuffer])
def test_whatever_is_lost_or_doubled_between_stages_is_noticed_or_mended(
    tmp_path, monkeypatch, cls, kind, times, most
):
    """Pieces of data that a runner moves, each lost in one build, and doubled in another."""
    expected = hashes(build(cls, tmp_path / "expected", engine="beam"))
    losing = Losing(monkeypatch, kind, times)
    build(cls, tmp_path / "counting", engine="beam")
    pieces = losing.seen
    chosen = range(0, pieces, math.ceil(pieces / most))
    noticed = 0
    for number in chosen:
        losing.number, losing.seen = number, 0
        place = tmp_path / str(number)
        try:
            found = build(cls, place, engine="beam")
        except NOTICED:
            noticed += 1
            assert not (place / "toy_engine/1.0.0").exists()
            losing.number = None
            found = build(cls, place, engine="beam")  # goes on where it was
        assert hashes(found) == expected
    assert pieces >= 3
    if times == 0:
        assert noticed == len(chosen)


def test_a_lost_element_is_reported_with_both_tallies(tmp_path, monkeypatch):
    losing = Losing(monkeypatch, execution.GroupingBuffer, 0)
    losing.number = 3
    with pytest.raises(errors.LostExamplesError, match="were lost or duplicated while they were"):
        build(toys.InUnits, tmp_path, engine="beam")


def test_bundles_that_are_repeated_do_not_count_twice(tmp_path, monkeypatch, caplog):
    """Beam's own way to play bundles again, whose results it throws away: as after a retry."""
    expected = hashes(build(InOneBundle, tmp_path / "expected", engine="beam"))
    monkeypatch.setattr(runners, "FnApiRunner", lambda: FnApiRunner(bundle_repeat=2))
    logging.disable(logging.NOTSET)
    assert hashes(build(InOneBundle, tmp_path / "repeated", engine="beam")) == expected
    assert "Split train: Beam did not commit" in caplog.text  # bundles were repeated


def test_a_bundle_that_beam_forgets_is_noticed(tmp_path, monkeypatch, dask_in_process):
    """Workers have gathered and written all, but the runner does not say so of one bundle."""
    original = generating.Commit.__call__
    monkeypatch.setattr(
        generating.Commit, "__call__", lambda self, key, said: original(self, key, list(said)[1:])
    )
    options = {"runner": "dask", "dask_client_address": dask_in_process}
    with pytest.raises(errors.LostExamplesError, match="that the runner lost"):
        build(beam_toys.Transforms, tmp_path, beam_options=options)


def test_all_bundles_that_beam_forgets_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(generating.Commit, "__call__", lambda self, key, said: None)
    with pytest.raises(errors.LostExamplesError):
        build(InOneBundle, tmp_path)


def test_a_record_that_changes_on_the_way_is_noticed(tmp_path, monkeypatch):
    original = buckets.packed

    def changed(index, data, keys):
        data = data.copy()
        data[20] ^= 1  # within the first record
        return original(index, data, keys)

    monkeypatch.setattr(buckets, "packed", changed)
    with pytest.raises(errors.CorruptShardError, match="The checksum of the record is wrong"):
        build(toys.InUnits, tmp_path, engine="beam")


def test_a_part_that_is_another_than_reported_is_noticed(tmp_path, monkeypatch):
    """One record in place of another: as many, and as long, but not the same."""
    original = build_files.BuildFiles.write_json

    def swapped(self, name, value):
        if "kept" in value:
            count, size, checksums = value["kept"]
            value = value | {"kept": [count, size, checksums + 1]}
        original(self, name, value)

    monkeypatch.setattr(build_files.BuildFiles, "write_json", swapped)
    with pytest.raises(errors.LostExamplesError, match="checksum"):
        build(toys.InUnits, tmp_path, engine="beam")


def test_a_run_that_disappears_is_noticed(tmp_path, monkeypatch):
    original = run_files.complete

    def without_one(there, item, options):
        found = original(there, item, options)
        del found.runs[0]
        return found

    monkeypatch.setattr(run_files, "complete", without_one)
    with pytest.raises(errors.LostExamplesError, match="while they were sorted"):
        build(toys.InUnits, tmp_path, engine="beam")


def test_tallies_do_not_depend_on_order_and_add_up():
    one, other = ChecksumTotals(2, 100, 2**64 - 1), ChecksumTotals(1, 30, 5)
    assert one + other == other + one == ChecksumTotals(3, 130, 4)
    assert ChecksumTotals.from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize(
    "options",
    [
        {"direct_running_mode": "multi_threading"},
        {"direct_running_mode": "multi_processing", "direct_num_workers": "2"},
        {"direct_num_workers": "2"},
        {"direct_num_workers": "0"},
    ],
)
def test_modes_that_lose_examples_are_refused(tmp_path, options):
    with pytest.raises(errors.InvalidOptionError, match="loses examples with it") as caught:
        build(toys.InUnits, tmp_path, beam_options=options)
    assert "--engine local" in str(caught.value)


def test_what_other_machines_have_written_may_be_seen_late(tmp_path, monkeypatch, dask_in_process):
    """As on NFS: reports that are there are not seen at first, in each stage."""
    from my_datasets.building.engines.beam import sorting, writing

    expected = hashes(build(toys.InUnits, tmp_path / "expected", workers=1))
    for name, kind in (("part", sorting.SortedBucket), ("shard", writing.WrittenShard)):
        original, seen = kind.of, []

        def late(*said, original=original, seen=seen):
            found = original(*said)
            if found is not None:
                seen.append(time.monotonic())
            return found if seen and time.monotonic() > seen[0] + 1.5 else None

        monkeypatch.setattr(kind, "of", late)
        options = {"runner": "dask", "dask_client_address": dask_in_process}
        place = tmp_path / name
        assert hashes(build(toys.InUnits, place, engine="beam", beam_options=options)) == expected
