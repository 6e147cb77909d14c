"""Kills before every change that a build makes to the file system, several of them in a row."""

import functools
import logging
import signal

import pytest
import tensorflow_datasets as tfds

from my_datasets.building import staging
from my_datasets.building.engines import local
from tests import file_events
from tests.building.engines import kills, toys
from tests.building.engines.builds import build

pytestmark = pytest.mark.faults

_VERSION = "toy_engine/1.0.0"
_LOGGER = logging.getLogger(__name__)


def _run(directory, *, rows=12, held=None, can_swap=True, overwrite=False, cls=None, **options):
    """Builds, in a child that was forked for it."""
    tfds.disable_progress_bar()
    toys._Toy.rows = rows
    if held is not None:
        local._BUFFER_SHARE = held
    if not can_swap:
        staging._exchange = lambda *_: False
    mode = tfds.download.GenerateMode
    config = tfds.download.DownloadConfig(
        num_shards=2,
        download_mode=mode.REUSE_CACHE_IF_EXISTS if overwrite else mode.REUSE_DATASET_IF_EXISTS,
    )
    build(cls or toys.InUnits, directory, config=config, workers=1, **options)


def _older(directory, **options):
    """Makes the version that is to be overwritten, in a child as well."""
    work = functools.partial(_run, directory, rows=9, **options)
    assert file_events.run(work, directory).code == 0


def _fresh(**options):
    return kills.Build(functools.partial(_run, **options), lambda _: None, _VERSION)


def _overwriting(*, can_swap=True, **options):
    return kills.Build(
        functools.partial(_run, overwrite=True, can_swap=can_swap, **options),
        functools.partial(_older, **options),
        _VERSION,
        may_be_gone=not can_swap,
    )


_BUILDS = {
    "fresh": _fresh(),
    "fresh, plain": _fresh(cls=toys.Plain),
    "fresh, ordered": _fresh(cls=toys.Ordered),
    "fresh, array_record": _fresh(file_format="array_record"),
    "fresh, parquet": _fresh(file_format="parquet"),
    "fresh, small runs": _fresh(held=1e-6, rows=300),
    "fresh, Beam": _fresh(engine="beam"),
    "overwriting": _overwriting(),
    "overwriting, array_record": _overwriting(file_format="array_record"),
    "overwriting, parquet": _overwriting(file_format="parquet"),
    "overwriting, Beam": _overwriting(engine="beam"),
    "overwriting, names cannot be swapped": _overwriting(can_swap=False),
}


@pytest.mark.parametrize("name", ["fresh", "overwriting"])
def test_what_a_kill_before_any_event_leaves_is_built_on(tmp_path, name):
    """One kill: a third of the states that it can leave; `make soak` takes all, and more kills."""
    found = kills.explore(_BUILDS[name], tmp_path, kills=1, most=50, thinned=1)
    _LOGGER.warning("%s: %s", name, found)
    assert found.states[1] == 50


def test_what_is_looked_at_is_what_real_kills_leave(tmp_path):
    """SIGKILL before every fourth event leaves the very state that was seen before it."""
    here = _fresh()
    expected = kills.states(here, tmp_path / "whole")
    for number in range(0, len(expected), 4):
        code, state = kills.killed(here, tmp_path / str(number), number)
        assert code == -signal.SIGKILL
        call, there = expected[number]
        # The order in which a directory's files are removed is that of the file system.
        assert state == there or call in ("unlinkat", "rmdir"), number


@pytest.mark.slow
@pytest.mark.parametrize("name", _BUILDS)
def test_what_up_to_three_kills_leave_is_built_on(tmp_path, name):
    """All states after one kill; for `fresh` all after two and three, for others some."""
    most = {"fresh": 1500, "fresh, Beam": 50, "overwriting, Beam": 50}.get(name, 150)
    found = kills.explore(_BUILDS[name], tmp_path, kills=3, most=most)
    _LOGGER.warning("%s: %s", name, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", _BUILDS)
def test_real_kills_before_every_event(tmp_path, name):
    """The build, killed before each event in turn, always goes on where it was left."""
    here, folder = _BUILDS[name], tmp_path / "killed"
    code, number = -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        code, _ = kills.killed(here, folder, number)
        number += 1
    assert code == 0
