"""Ctrl-C and SIGTERM, before changes that commands make to the file system."""

import contextlib
import functools
import hashlib
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from tests import file_events
from tests.cli import stoppable
from tests.conftest import ROOT
from tests.file_events import Sent
from tests.waiting import until

pytestmark = pytest.mark.faults

_NAME = "toy_stoppable"
_ALONE = "MY_DATASETS_TEST_ALONE"
CTRL_C = Sent(signal.SIGINT, to_all=True)
_SIGNALS = {
    "Ctrl-C": CTRL_C,
    "SIGTERM": Sent(signal.SIGTERM, to_all=False),
    "SIGTERM to all": Sent(signal.SIGTERM, to_all=True),
}


def _command(arguments, told):
    """Runs `my-datasets`, in a child that was forked for it."""
    from my_datasets.cli.main import main

    with told.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # Of the test's own process, which catches what is written and logged.
    logging.getLogger().handlers.clear()
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    sys.argv = ["my-datasets", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _run(directory, arguments, before=None, *, with_reads=False):
    """Returns how a command ended, and what it said."""
    told = directory.parent / "told"
    work = functools.partial(_command, arguments, told)
    outcome = file_events.run(work, directory, before, with_reads=with_reads)
    until(lambda: not _is_there(outcome.group), "processes are left")
    return outcome, told.read_text()


def _is_there(group):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


def _stopped(directory, arguments, number, sent, **options):
    """Runs a command that gets a signal before an event."""
    return _run(directory, arguments, lambda at, _: sent if at == number else True, **options)


def _files(directory):
    return {
        os.path.relpath(path, directory): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def _code(sent):
    return 128 + sent.signal


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A data directory with the version, and the events of its build."""
    directory = tmp_path_factory.mktemp("whole") / "data"
    directory.mkdir()
    outcome, told = _run(directory, _build(directory))
    assert outcome.code == 0, told
    return directory, outcome.events


def _build(directory, *more):
    return [
        "build", _NAME, "--imports", stoppable.__name__, "--data-dir", str(directory),
        "--workers", "2", "--num-shards", "2", *more,
    ]  # fmt: skip


def _numbers(events, some):
    """Returns events, evenly chosen, and those that finish something."""
    return sorted({i * len(events) // some for i in range(some)})


@pytest.mark.parametrize("sent", _SIGNALS.values(), ids=_SIGNALS)
@pytest.mark.parametrize("some", [7, pytest.param(10_000, marks=pytest.mark.slow)])
def test_an_interrupted_build_says_what_is_kept_and_leaves_nothing_else(
    tmp_path, whole, sent, some
):
    reference, events = whole
    wanted = _files(reference)
    for number in _numbers(events, some):
        directory = tmp_path / str(number) / "data"
        directory.mkdir(parents=True)
        outcome, told = _stopped(directory, _build(directory), number, sent)
        where = f"before {number} {events[number]}: {told}"
        assert "Traceback" not in told, where
        left = _files(directory)
        work = directory / _NAME / ".1.0.0.work"
        if outcome.code == 0:  # it came too late
            assert left == wanted, where
            continue
        assert outcome.code == _code(sent), where
        assert not list(directory.rglob("incomplete.*")), where
        assert not list(directory.rglob("*.partial")), where
        lines = told.strip().splitlines()
        if work.exists():
            assert lines[-2] == "Interrupted. Finished units and shards are kept.", where
            assert not (work / "drafts").exists(), where
            assert not (work / "examined").exists(), where
        elif not (directory / _NAME / "1.0.0").exists():
            nothing = "Nothing was finished, and nothing is left behind."
            assert lines[-2] in (f"Interrupted. {nothing}", "Interrupted."), where
        if lines[-1] != "Interrupted.":
            command = " ".join(["my-datasets", *_build(directory)])
            assert lines[-1] == f"To resume: {command}", where
        again, told = _run(directory, _build(directory))
        assert again.code == 0, told
        assert _files(directory) == wanted, where
        shutil.rmtree(directory)


def test_restart_is_no_part_of_the_command_that_continues(tmp_path, whole):
    directory = tmp_path / "data"
    directory.mkdir()
    number = next(
        number for number, event in enumerate(whole[1]) if event.paths[-1].endswith("shards")
    )
    outcome, told = _stopped(directory, _build(directory, "--restart"), number, CTRL_C)
    assert outcome.code == 130
    assert "kept" in told
    assert told.endswith(f"To resume: my-datasets {' '.join(_build(directory))}\n")


def test_a_second_ctrl_c_ends_at_once(tmp_path, whole):
    """The second one comes while the first is dealt with."""
    directory = tmp_path / "data"
    directory.mkdir()
    number = len(whole[1]) // 2
    outcome, _ = _run(
        directory, _build(directory), lambda at, _: CTRL_C if at in (number, number + 1) else True
    )
    assert outcome.code == -signal.SIGINT
    assert _run(directory, _build(directory))[0].code == 0
    assert _files(directory) == _files(whole[0])


@pytest.mark.parametrize(
    ("runner", "sent"),
    [
        pytest.param(
            runner, sent, id=f"{runner}-{name}",
            marks=[pytest.mark.slow] if runner == "dask" and name != "SIGTERM" else [],
        )
        for runner in ("in-process", "dask")
        for name, sent in _SIGNALS.items()
    ],
)  # fmt: skip
def test_workers_of_beam_end(tmp_path, whole, runner, sent):
    """Those of a cluster that the build has started itself."""
    if runner == "dask" and not os.environ.get(_ALONE):
        # What a fork takes along of other tests' clusters hangs the new one.
        node = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
        command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", node]
        done = subprocess.run(
            command, env={**os.environ, _ALONE: "1"}, cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
        return
    directory = tmp_path / "data"
    directory.mkdir()
    more = ["--engine", "beam", "--beam-option", f"runner={runner}"]
    seen = []

    def before(_, event):
        if not seen and event.call.startswith("rename") and event.paths[-1].endswith(".run"):
            seen.append(event)
            return sent
        return True

    outcome, told = _run(directory, _build(directory, *more), before)
    assert seen
    assert outcome.code == _code(sent), told
    assert "Finished units and shards are kept." in told
    assert "Traceback" not in told
    assert not list(directory.rglob("incomplete.*"))
    again, told = _run(directory, _build(directory, *more))
    assert again.code == 0, told
    shards = {name: one for name, one in _files(whole[0]).items() if "tfrecord" in name}
    assert shards.items() <= _files(directory).items()


@pytest.mark.parametrize("sent", _SIGNALS.values(), ids=_SIGNALS)
def test_download_and_prepare_in_python(tmp_path, whole, sent):
    """`tfds build` and a user's own program: no command of ours is around it."""
    directory = tmp_path / "data"
    directory.mkdir()

    def work():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(tmp_path / "told", os.O_WRONLY | os.O_CREAT), 2)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        builder = stoppable.Stoppable(data_dir=directory)
        config = tfds.download.DownloadConfig(num_shards=2)
        try:
            builder.download_and_prepare(download_config=config)
        except KeyboardInterrupt as error:
            sys.stderr.write("".join(error.__notes__))
            sys.exit(130)

    number = len(whole[1]) // 2
    outcome = file_events.run(work, directory, lambda at, _: sent if at == number else True)
    until(lambda: not _is_there(outcome.group), "processes are left")
    assert outcome.code == _code(sent), (tmp_path / "told").read_text()
    if sent is CTRL_C:
        assert (tmp_path / "told").read_text().endswith("Finished units and shards are kept.")
    assert not list(directory.rglob("incomplete.*"))
    assert file_events.run(work, directory).code == 0
    assert _files(directory).keys() == _files(whole[0]).keys()


_KEPT = {
    "verify": "Verified shards are kept.",
    "publish": "Uploaded files are kept.",
    "pull": "Downloaded files are kept.",
    "export": "Nothing was written.",
}


@pytest.mark.parametrize("sent", [CTRL_C, _SIGNALS["SIGTERM"]], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("name", [*_KEPT, "stats"])
@pytest.mark.parametrize("some", [3, pytest.param(10_000, marks=pytest.mark.slow)])
def test_other_commands(tmp_path, whole, monkeypatch, name, sent, some):
    place, version = tmp_path / "place", f"{_NAME}:1.0.0"
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    data = shutil.copytree(whole[0], place / "data")
    commands = {
        "verify": ["verify", version, "--deep", "--data-dir", str(data)],
        "publish": ["publish", version, "--data-dir", str(data), "--to", str(place / "store")],
        "pull": [
            "pull", version, "--from", str(place / "store"), "--data-dir", str(place / "pulled")
        ],
        "export": [
            "export", version, "--data-dir", str(data), "--to", "parquet", "--output",
            str(place / "exported"),
        ],
        "stats": ["stats", version, "--data-dir", str(data), "--html", str(place / "page.html")],
    }  # fmt: skip
    if name == "pull":
        assert _run(place, commands["publish"])[0].code == 0
    start = shutil.copytree(place, tmp_path / "start")
    outcome, told = _run(place, commands[name], with_reads=True)
    assert outcome.code == 0, told
    wanted, events = _tree(place), outcome.events
    for number in _numbers(events, some):
        shutil.rmtree(place)
        shutil.copytree(start, place)
        outcome, told = _stopped(place, commands[name], number, sent, with_reads=True)
        where = f"before {number} {events[number]}: {told}"
        assert "Traceback" not in told, where
        if outcome.code:
            assert outcome.code == _code(sent), where
            assert "Interrupted." in told, where
            if name in ("export", "stats"):
                assert set(_tree(place)) <= {*_tree(start), *wanted}, where
        again, told = _run(place, commands[name])
        assert again.code == 0, where + told
        assert _tree(place) == wanted, where


def _tree(directory: Path) -> list[str]:
    return sorted(
        os.path.relpath(path, directory)
        for path in directory.rglob("*")
        if "cache" not in path.parts
    )
