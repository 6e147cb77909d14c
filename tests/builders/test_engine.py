"""Builds through the engine: same bytes, nothing lost, resumed, bounded, refused when wrong."""

import contextlib
import hashlib
import json
import logging
import multiprocessing
import os
import random
import re
import resource
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from my_datasets import errors
from my_datasets.building.engines import generating, planning
from my_datasets.building.options import BuildOptions
from my_datasets.records import index
from tests.builders import engine_toys as toys

THREE_SHARDS = tfds.download.DownloadConfig(num_shards=3)


def build(cls, data_dir, *, config=THREE_SHARDS, file_format=None, **options):
    builder = cls(data_dir=data_dir)
    builder.download_and_prepare(
        download_config=config, file_format=file_format, build_options=BuildOptions(**options)
    )
    return Path(builder.data_dir)


def shards(version_dir):
    return sorted(version_dir.glob("*-of-?????"))


def hashes(version_dir):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in shards(version_dir)
    }


def records(version_dir, split="train"):
    files = [str(path) for path in shards(version_dir) if f"-{split}." in path.name]
    return [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(files)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The hashes of a build with units in one process."""
    return hashes(build(toys.InUnits, tmp_path_factory.mktemp("reference"), workers=1))


@pytest.fixture(autouse=True)
def _usual_behaviour(monkeypatch):
    monkeypatch.setattr(toys._Toy, "before", staticmethod(lambda unit, i: None))


def steer(monkeypatch, before):
    monkeypatch.setattr(toys._Toy, "before", staticmethod(before))


# --- Same bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (toys.Plain, {}),
        (toys.InUnits, {"workers": 2}),
        (toys.InUnits, {"workers": 4, "max_memory": 64 << 20}),
        (toys.InUnits, {"workers": 8}),
        (toys.Columns, {"workers": 1}),
        (toys.Columns, {"workers": 2}),
    ],
)
def test_bytes_do_not_depend_on_how_they_are_made(reference, tmp_path, cls, options):
    assert hashes(build(cls, tmp_path, **options)) == reference


def test_bytes_do_not_depend_on_memory_nor_on_the_order_of_units(reference, tmp_path, monkeypatch):
    """Hundreds of small runs and chunks, units that end in another order, hash seed and all."""
    monkeypatch.setattr(generating, "_HELD", 0.0005)
    monkeypatch.setattr(planning, "_CHUNK", 0.0005)
    steer(
        monkeypatch, lambda unit, i: time.sleep(0.3 * (6 - unit)) if i == 0 and unit < 6 else None
    )
    found = build(toys.InUnits, tmp_path, workers=2, max_memory=64 << 20)
    assert hashes(found) == reference


def test_order_and_content_are_those_of_tfds(tmp_path):
    theirs = toys.ByTfds(data_dir=tmp_path / "theirs")
    theirs.download_and_prepare(download_config=THREE_SHARDS)
    ours = build(toys.InUnits, tmp_path / "ours", workers=2)
    for split in ("train", "test"):
        assert records(ours, split) == records(Path(theirs.data_dir), split)
    assert (
        json.loads((ours / "dataset_info.json").read_text())["splits"]
        == json.loads((Path(theirs.data_dir) / "dataset_info.json").read_text())["splits"]
    )
    read = tfds.builder_from_directory(ours).as_dataset(split="train")
    assert len(list(read)) == toys.UNITS * toys._Toy.rows


@pytest.mark.parametrize("keys", ["texts", "ints"])
def test_unshuffled_order_is_that_of_tfds(tmp_path, monkeypatch, keys):
    def before(unit, i):
        if keys == "ints":
            return (1000 * ((unit * 7) % 5) - i + (50_000 if unit == 99 else 10_000 * unit),
                    toys.row(unit, i))  # fmt: skip
        return None

    steer(monkeypatch, before)
    monkeypatch.setattr(toys.ByTfds, "before", staticmethod(before))
    monkeypatch.setattr(toys.ByTfds, "disable_shuffling", True)
    theirs = toys.ByTfds(data_dir=tmp_path / "theirs")
    theirs.download_and_prepare(download_config=THREE_SHARDS)
    ours = build(toys.Ordered, tmp_path / "ours", workers=2)
    assert records(ours) == records(Path(theirs.data_dir))


@pytest.mark.parametrize("file_format", ["array_record", "parquet"])
def test_other_formats_hold_the_same_and_are_the_same_twice(tmp_path, file_format):
    first = build(toys.InUnits, tmp_path / "a", file_format=file_format, workers=2)
    again = build(toys.Plain, tmp_path / "b", file_format=file_format)
    assert hashes(first) == hashes(again)
    plain = build(toys.InUnits, tmp_path / "c", workers=1)
    builder = tfds.builder_from_directory(first)
    if file_format == "array_record":
        source = builder.as_data_source(split="train")
        texts = [source[i]["text"] for i in range(len(source))]
    else:
        import pyarrow.parquet as pq

        data = [r for p in shards(first) if "-train." in p.name for r in pq.read_table(p)["data"]]
        texts = [
            tf.train.Example.FromString(r.as_py()).features.feature["text"].bytes_list.value[0]
            for r in data
        ]
    expected = [r.features.feature["text"].bytes_list.value[0] for r in records(plain)]
    assert texts == expected


def test_each_shard_has_its_record_index(tmp_path):
    version_dir = build(toys.InUnits, tmp_path, workers=2)
    assert len(shards(version_dir)) == 6
    for shard in shards(version_dir):
        assert index.read(shard).tolist() == index.scan(shard).tolist()


@pytest.mark.parametrize("limit", [1, 399, 400, 1000, 10**6])
def test_a_sample_is_the_beginning(tmp_path, limit):
    config = tfds.download.DownloadConfig(max_examples_per_split=limit)
    ours = build(toys.InUnits, tmp_path / "ours", config=config, workers=2)
    theirs = toys.ByTfds(data_dir=tmp_path / "theirs")
    theirs.download_and_prepare(download_config=config)
    assert records(ours) == records(Path(theirs.data_dir))


def test_only_some_splits(tmp_path):
    version_dir = build(toys.InUnits, tmp_path, splits=("test",))
    assert list(tfds.builder_from_directory(version_dir).info.splits) == ["test"]
    with pytest.raises(errors.SplitNotFoundError, match="Splits of this dataset: train, test"):
        build(toys.InUnits, tmp_path / "other", splits=("validation",))


@pytest.mark.parametrize(
    ("size", "count", "readers", "expected"),
    [
        (1, 1, 1, 1),
        (9 << 20, 1000, 1, 1),
        (100 << 20, 1000, 1, 10),  # ten for one reader, none below 10 MB
        (100 << 20, 4, 1, 4),
        (3 << 30, 10**6, 1, 21),  # 150 MB each
        (3 << 30, 10**6, 4, 40),
        (300 << 20, 10**6, 8, 31),
    ],
)
def test_shards_follow_the_published_guidance(size, count, readers, expected):
    from my_datasets.building.shards import number_of_shards

    assert number_of_shards(size, count, readers) == expected


# --- Faults -------------------------------------------------------------------------------------


def run_apart(data_dir, cls=toys.InUnits, **options):
    """Starts a build in a process of its own, with slow units; forked, to spare the imports."""

    def work():
        os.setsid()
        logging.disable()
        # The lock of its bars would be that of this process's, and stay locked when it is killed.
        tfds.disable_progress_bar()
        toys._Toy.before = staticmethod(slow)
        build(cls, data_dir, **options)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def slow(unit, i):
    if i % 100 == 0:
        time.sleep(0.05)


def kill(process):
    """Kills a build with all its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()


def test_a_killed_build_goes_on_where_it_was(reference, tmp_path, monkeypatch, caplog):
    marker = tmp_path / "killed"
    steer(monkeypatch, partial(toys.stop_here, file=marker, how="kill"))

    monkeypatch.setattr(generating, "_HELD", 0.002)  # so that there are runs before the end
    with pytest.raises(errors.BuildInterruptedError, match=r"by signal 9\.\n  It was at unit 3"):
        build(toys.InUnits, tmp_path, workers=2)
    assert not (tmp_path / "toy_engine/1.0.0").exists()
    assert not list((tmp_path / "toy_engine").glob("incomplete*"))

    done_again = tmp_path / "done_again"

    def note(unit, i):
        if i == 0:
            with done_again.open("a") as file:
                file.write(f"{unit} ")

    steer(monkeypatch, note)
    with caplog.at_level(logging.WARNING):
        version_dir = build(toys.InUnits, tmp_path, workers=2)
    assert "Resuming the build" in caplog.text
    units = done_again.read_text().split()
    assert "3" in units
    assert len(units) < toys.UNITS + 1
    assert hashes(version_dir) == reference
    assert sorted(path.name for path in (tmp_path / "toy_engine").iterdir()) == [
        ".1.0.0.lock",
        "1.0.0",
    ]


@pytest.mark.parametrize("moments", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_kills_at_any_moment_end_in_the_same_bytes(reference, tmp_path, moments):
    """SIGKILL of all processes, again and again, until a build comes through."""
    rng = random.Random(moments)
    begin = time.monotonic()
    run_apart(tmp_path / "whole", workers=2).join()
    whole = time.monotonic() - begin
    for _ in range(moments):
        process = run_apart(tmp_path / "killed", workers=2)
        process.join(rng.uniform(0.0, 1.0) * whole)
        kill(process)
        version_dir = tmp_path / "killed/toy_engine/1.0.0"
        if version_dir.exists():
            assert hashes(version_dir) == reference
    assert hashes(build(toys.InUnits, tmp_path / "killed", workers=2)) == reference


def test_a_hanging_worker_is_stopped(tmp_path, monkeypatch):
    steer(monkeypatch, partial(toys.stop_here, file=tmp_path / "hung", how="hang"))
    with pytest.raises(errors.BuildInterruptedError, match="did not answer for"):
        build(toys.InUnits, tmp_path, workers=2, unit_timeout=4.0)


def test_a_worker_that_is_killed_while_it_draws_a_bar_stops_nobody_elses(tmp_path, monkeypatch):
    from tensorflow_datasets.core.utils import tqdm_utils

    def before(unit, i):
        if (unit, i) == (3, 200):
            with tqdm_utils.tqdm().get_lock():
                os.kill(os.getpid(), signal.SIGKILL)

    tqdm_utils.tqdm().close()  # makes the lock
    steer(monkeypatch, before)
    with pytest.raises(errors.BuildInterruptedError, match="by signal 9"):
        build(toys.InUnits, tmp_path, workers=2)
    tqdm_utils.tqdm().close()


def test_a_unit_that_raises_is_named_and_the_others_are_kept(reference, tmp_path, monkeypatch):
    def before(unit, i):
        if (unit, i) == (4, 7):
            raise RuntimeError("no such column")

    steer(monkeypatch, before)
    with pytest.raises(errors.UnitError) as caught:
        build(toys.InUnits, tmp_path, workers=2)
    text = str(caught.value)
    assert "Unit: 4 (4), after it had yielded 7 times" in text
    assert "RuntimeError: no such column" in text
    assert "in before" in str(caught.value.__cause__)
    assert list((tmp_path / "toy_engine/.1.0.0.work").glob("*.run"))
    steer(monkeypatch, lambda unit, i: None)
    assert hashes(build(toys.InUnits, tmp_path, workers=2)) == reference


def test_other_work_is_discarded(reference, tmp_path, monkeypatch, caplog):
    def before(unit, i):
        if unit == 5:
            raise RuntimeError("stop")

    steer(monkeypatch, before)
    limited = tfds.download.DownloadConfig(max_examples_per_split=2200, num_shards=3)
    with pytest.raises(errors.UnitError):
        build(toys.InUnits, tmp_path, config=limited, workers=2)
    steer(monkeypatch, lambda unit, i: None)
    with caplog.at_level(logging.WARNING):
        found = build(toys.InUnits, tmp_path, workers=2)
    assert "Discarding the unfinished work" in caplog.text
    assert "changed since: options" in caplog.text
    assert hashes(found) == reference


def test_restart_begins_anew(reference, tmp_path, monkeypatch, caplog):
    def before(unit, i):
        if unit == 5:
            raise RuntimeError("stop")

    steer(monkeypatch, before)
    with pytest.raises(errors.UnitError):
        build(toys.InUnits, tmp_path, workers=2)
    steer(monkeypatch, lambda unit, i: None)
    with caplog.at_level(logging.WARNING):
        assert hashes(build(toys.InUnits, tmp_path, workers=2, resume=False)) == reference
    assert "Resuming" not in caplog.text


def test_a_run_that_did_not_reach_the_disk_is_done_again(reference, tmp_path, monkeypatch, caplog):
    def before(unit, i):
        if unit == 99:
            raise RuntimeError("stop")

    steer(monkeypatch, before)
    with pytest.raises(errors.UnitError):
        build(toys.InUnits, tmp_path, workers=2)
    work = tmp_path / "toy_engine/.1.0.0.work"
    torn = sorted(work.glob("*.run"))[0]
    torn.write_bytes(torn.read_bytes()[:-100] + bytes(100))
    with (work / "journal.jsonl").open("a") as file:
        file.write('{"split": "tr')  # as a power loss in the middle of a line leaves it
    steer(monkeypatch, lambda unit, i: None)
    with caplog.at_level(logging.WARNING):
        assert hashes(build(toys.InUnits, tmp_path, workers=2)) == reference
    assert "did not reach the disk" in caplog.text


def test_a_lost_run_is_lost_once(tmp_path, monkeypatch, caplog):
    def before(unit, i):
        if unit == 99:
            raise RuntimeError("stop")

    steer(monkeypatch, before)
    for damage in (True, False, False):
        caplog.clear()
        with caplog.at_level(logging.WARNING), pytest.raises(errors.UnitError):
            build(toys.InUnits, tmp_path, workers=2)
        if damage:
            next((tmp_path / "toy_engine/.1.0.0.work").glob("*.run")).write_bytes(b"")
    assert "did not reach the disk" not in caplog.text
    assert "Resuming the build" in caplog.text


def test_slow_examples_are_no_hanging_worker(tmp_path, monkeypatch):
    """The unit takes longer than the timeout, no example does, even on a machine that stalls."""
    monkeypatch.setattr(toys._Toy, "rows", 24)
    steer(monkeypatch, lambda unit, i: time.sleep(1.0))
    build(toys.InUnits, tmp_path, config=None, splits=("test",), workers=2, unit_timeout=20.0)


def test_a_table_with_too_many_keys_is_refused(tmp_path, monkeypatch):
    table = pa.table({"x": [1, 2]})
    steer(monkeypatch, lambda unit, i: ([1, 2, 3], table) if i == 1 else None)
    with pytest.raises(errors.InvalidKeyError, match="2 rows came with 3 keys"):
        build(toys.InUnits, tmp_path, workers=2)


def test_a_full_disk_loses_nothing(tmpfs, monkeypatch):
    disk = tmpfs("3m")
    monkeypatch.setattr(toys._Toy, "rows", 4000)
    with pytest.raises(errors.DiskFullError):
        build(toys.InUnits, disk, workers=2)
    assert not (disk / "toy_engine/1.0.0").exists()
    assert not list((disk / "toy_engine").glob("incomplete*"))
    subprocess.run(["mount", "-o", "remount,size=60m", str(disk)], check=True)
    version_dir = build(toys.InUnits, disk, workers=2)
    assert len(records(version_dir)) == 4000 * toys.UNITS


@pytest.mark.parametrize("builds", [2, 8])
def test_builds_at_once_end_in_one_good_result(reference, tmp_path, builds):
    """One of them is killed in the middle; another takes over what it finished."""
    running = [run_apart(tmp_path, workers=1) for _ in range(builds)]
    work = tmp_path / "toy_engine/.1.0.0.work"
    deadline = time.monotonic() + 120
    while not list(work.glob("*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    if builds == 8:
        kill(running[0])
    for process in running:
        process.join()
    assert [process.exitcode for process in running[1:]] == [0] * (builds - 1)
    assert hashes(tmp_path / "toy_engine/1.0.0") == reference
    assert sorted(path.name for path in (tmp_path / "toy_engine").iterdir()) == [
        ".1.0.0.lock",
        "1.0.0",
    ]


# --- What a generator may do --------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_generator_may_use_its_objects_again(tmp_path, workers):
    """One dict, array, list and file for all examples, as TFDS allows; files that are closed."""
    theirs = toys.ReusingByTfds(data_dir=tmp_path / "theirs")
    theirs.download_and_prepare()
    expected = [with_pixels(record) for record in records(Path(theirs.data_dir))]
    assert len(expected) == 50
    for cls in (toys.Reusing, toys.ReusingInUnits):
        ours = build(cls, tmp_path / cls.__name__, config=None, workers=workers)
        assert [with_pixels(record) for record in records(ours)] == expected


def with_pixels(record):
    """Two encoders make two PNG files of the same array."""
    image = record.features.feature["image"].bytes_list
    image.value[0] = tf.io.decode_png(image.value[0]).numpy().tobytes()
    return record


def test_large_examples_of_a_plain_generator_are_encoded_in_threads(tmp_path):
    once, again = (
        build(toys.Large, tmp_path / str(workers), config=None, workers=workers, splits=("train",))
        for workers in (1, 4)
    )
    assert hashes(once) == hashes(again)
    assert len(records(once)) == toys.Large.rows


def test_an_error_in_a_thread_is_described(tmp_path, monkeypatch):
    monkeypatch.setattr(toys.Large, "wrong", 30)
    with pytest.raises(errors.ExampleError, match=r"example 30 .*\n  Key: 30\n  Feature: array"):
        build(toys.Large, tmp_path, config=None, workers=2, splits=("train",))
    kept = build(
        toys.Large, tmp_path, config=None, workers=2, splits=("train",), on_error="quarantine",
        max_quarantined=0.1,
    )  # fmt: skip
    assert len(records(kept)) == toys.Large.rows - 1


def test_steps_are_generated_once_also_beside_an_example_that_does_not_fit(tmp_path):
    """Going through a batch again must not find generators that are at their end."""
    ours = build(toys.Episodes, tmp_path, config=None, on_error="quarantine", max_quarantined=0.5)
    found = sorted(
        len(record.features.feature["steps/action"].int64_list.value) for record in records(ours)
    )
    assert found == [1, 2, 4, 5]
    entry = json.loads((ours / "quarantine.jsonl").read_text())
    assert (entry["key"], entry["feature"]) == ("3", "n")


@pytest.mark.parametrize(
    ("cap", "units", "beside"),
    [(8 << 20, 12, 150 << 20), pytest.param(64 << 20, 70, 300 << 20, marks=pytest.mark.slow)],
)
def test_memory_stays_within_its_cap(tmp_path, monkeypatch, cap, units, beside):
    """Ten times the cap, in units of two processes; `beside` is for all that is no record."""
    from my_datasets.building import options

    monkeypatch.setattr(options, "LEAST_MEMORY", cap)
    monkeypatch.setattr(toys.LargeInUnits, "units_of_it", units)
    before = anonymous_memory()
    process = run_apart(tmp_path, toys.LargeInUnits, config=None, workers=2, max_memory=cap)
    peak = 0
    while process.is_alive():
        peak = max(peak, anonymous_memory())
        time.sleep(0.25)
    assert process.exitcode == 0
    version_dir = tmp_path / "toy_large/1.0.0"
    assert sum(path.stat().st_size for path in shards(version_dir)) > 10 * cap
    assert peak - before < cap + beside


def anonymous_memory():
    """Returns the memory of this process and those below it, what they share counted once."""
    waiting, total = [os.getpid()], 0
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
            sizes = re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB", text, re.MULTILINE)
            total += 1024 * sum(map(int, sizes))
            for thread in Path(f"/proc/{process}/task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
    return total


# --- Wrong examples -----------------------------------------------------------------------------


def test_duplicate_keys_are_named_with_both_origins(tmp_path, monkeypatch):
    def before(unit, i):
        return ("1-17", toys.row(unit, i)) if (unit, i) == (4, 250) else None

    steer(monkeypatch, before)
    for cls in (toys.InUnits, toys.Plain):
        with pytest.raises(errors.DuplicateKeyError) as caught:
            build(cls, tmp_path / cls.__name__, workers=2)
        assert "the key '1-17'" in str(caught.value)
        if cls is toys.InUnits:
            assert "First: unit 1 (1), example 17" in str(caught.value)
            assert "Again: unit 4 (4), example 250" in str(caught.value)
    config = tfds.download.DownloadConfig(ignore_duplicates=True)
    version_dir = build(toys.InUnits, tmp_path / "ignored", config=config, workers=2)
    assert len(records(version_dir)) == toys.UNITS * toys._Toy.rows - 1


def misfit(unit, i):
    return (f"{unit}-{i}", {**toys.row(unit, i), "label": "zebra"}) if (unit, i) == (2, 5) else None


@pytest.mark.parametrize("cls", [toys.InUnits, toys.Plain])
def test_an_example_that_does_not_fit_is_described(tmp_path, monkeypatch, cls):
    steer(monkeypatch, misfit)
    with pytest.raises(errors.ExampleError) as caught:
        build(cls, tmp_path, workers=2)
    text = str(caught.value)
    assert "Key: 2-5" in text
    assert "Feature: label" in text
    assert "Found: zebra (str)" in text
    if cls is toys.InUnits:
        assert "Unit: 2 (2), example 5" in text


def test_quarantine_sets_aside_and_reports(tmp_path, monkeypatch):
    steer(monkeypatch, misfit)
    version_dir = build(toys.InUnits, tmp_path / "a", workers=2, on_error="quarantine")
    assert len(records(version_dir)) == toys.UNITS * toys._Toy.rows - 1
    (line,) = (version_dir / "quarantine.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["unit"], entry["position"], entry["key"]) == ("2 (2)", 5, "2-5")
    assert entry["feature"] == "label"
    manifest = json.loads((version_dir / "manifest.json").read_text())
    assert manifest["quarantined"] == {"train": 1}
    with pytest.raises(errors.QuarantineError, match="1 of 2,400 examples"):
        build(toys.InUnits, tmp_path / "b", workers=2, on_error="quarantine", max_quarantined=0.0)


def test_quarantine_of_rows_in_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(
        toys, "row",
        lambda unit, i, usual=toys.row: {**usual(unit, i), "label": "ab?"[2 if i == 5 else i % 2]},
    )  # fmt: skip
    with pytest.raises(errors.ExampleError, match=r"Key: \d+-5\n  Feature: label"):
        build(toys.Columns, tmp_path / "a", workers=2)
    version_dir = build(toys.Columns, tmp_path / "b", workers=2, on_error="quarantine")
    assert len(records(version_dir)) == toys.UNITS * (toys._Toy.rows - 1)


@pytest.mark.parametrize(
    ("pair", "error", "said"),
    [
        ((None, {}), errors.ExampleError, "the keys"),
        ("ab", errors.ExampleError, "Found: b"),
        (5, errors.BuilderError, "yielded a int, not a pair"),
        (("absent", pa.RecordBatch.from_pydict({"x": [1]})), errors.InvalidKeyError, "'absent'"),
        (([1, 2], pa.RecordBatch.from_pydict({"x": [1]})), errors.InvalidKeyError, "2 keys"),
    ],
)
def test_what_is_no_example_is_refused(tmp_path, monkeypatch, pair, error, said):
    steer(monkeypatch, lambda unit, i: pair if i == 1 else None)
    with pytest.raises(error, match=re.escape(said)):
        build(toys.InUnits, tmp_path, workers=2)


def test_an_empty_split_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(toys._Toy, "rows", 0)
    with pytest.raises(errors.EmptySplitError, match="'train' has no example"):
        build(toys.InUnits, tmp_path, workers=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 0}, "at least 1"),
        ({"max_memory": 1000}, "at least 67,108,864 bytes"),
        ({"on_error": "ignore"}, "'fail' or 'quarantine'"),
        ({"max_quarantined": 2.0}, "from 0 to 1"),
        ({"unit_timeout": 0}, "above 0"),
        ({"readers": 0}, "at least 1"),
    ],
)
def test_options_out_of_range(options, said):
    with pytest.raises(errors.InvalidOptionError, match=said):
        BuildOptions(**options)


# --- Limits -------------------------------------------------------------------------------------


def test_few_open_files_are_enough(reference, tmp_path, monkeypatch):
    """Hundreds of runs, under a limit that the process itself nearly exhausts."""

    monkeypatch.setattr(generating, "_HELD", 0.0001)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        found = build(toys.InUnits, tmp_path, workers=2, max_memory=64 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert hashes(found) == reference


def test_progress_is_told(tmp_path):
    told = []
    build(toys.InUnits, tmp_path, workers=2, report=lambda p: told.append((p.stage, str(p))))
    assert next(stage for stage, _ in told) == "generating"
    assert {stage for stage, _ in told} >= {"generating", "sorting", "writing"}


def test_a_clock_that_goes_backwards_does_not_matter(reference, tmp_path, monkeypatch):
    now = iter(range(10**9, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    assert hashes(build(toys.InUnits, tmp_path, workers=2)) == reference


def test_numbers_of_all_kinds_survive_a_large_batch(tmp_path, monkeypatch):
    """More rows than one batch of either path."""
    monkeypatch.setattr(toys._Toy, "rows", 9000)
    monkeypatch.setattr(toys, "UNITS", 1)
    rows = build(toys.InUnits, tmp_path / "rows", splits=("test",), workers=2)
    columns = build(toys.Columns, tmp_path / "columns", splits=("test",), workers=2)
    assert hashes(rows) == hashes(columns)
    values = np.array([r.features.feature["n"].int64_list.value[0] for r in records(rows, "test")])
    assert len(values) == 9000


def test_without_a_report_there_is_the_bar_of_tfds(tmp_path, capsys, monkeypatch):
    from tensorflow_datasets.core.utils import tqdm_utils

    monkeypatch.setattr(tqdm_utils, "_active", True)
    build(toys.InUnits, tmp_path / "shown", workers=2)
    assert "Generating examples" in capsys.readouterr().err
    monkeypatch.setattr(tqdm_utils, "_active", False)
    build(toys.InUnits, tmp_path / "silent", workers=2)
    assert "Generating examples" not in capsys.readouterr().err


def test_work_that_set_examples_aside_is_not_taken_up_by_a_build_that_must_not(
    tmp_path, monkeypatch, caplog
):
    def before(unit, i):
        if unit == 99:
            raise RuntimeError("stop")
        return misfit(unit, i)

    steer(monkeypatch, before)
    with pytest.raises(errors.UnitError):
        build(toys.InUnits, tmp_path, workers=2, on_error="quarantine")
    steer(monkeypatch, misfit)
    with pytest.raises(errors.ExampleError):
        build(toys.InUnits, tmp_path, workers=2)
