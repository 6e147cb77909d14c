"""Runs all checks of a builder; its behavior is checked in two separate processes."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from my_datasets.checking import builder_files
from my_datasets.checking.builder_files import CheckTarget
from my_datasets.core.issue import Issue, Severity

# Issues that prevent running a builder: a run would report them again, less clearly.
_BEFORE_ANY_RUN = frozenset(
    {"syntax", "class-name", "base-class", "method-missing", "method-name", "version"}
)
# The seed determines the order of sets, so results that depend on it differ between two runs.
_SEEDS = ("1", "2")


class Running(Protocol):
    """A process, with the interface of `subprocess.Popen`."""

    returncode: int | None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the process to end; raises `subprocess.TimeoutExpired`."""

    def kill(self) -> None:
        """Kills the process."""


# Starts a process that examines the target in a file and writes a report, given a hash seed.
Launch = Callable[[Path, Path, str], Running]
# By split, the keys and hashes of its first examples.
Trace = dict[str, list[tuple[str, str]]]


def new_process(given: Path, report: Path, seed: str) -> Running:
    """Examines a target in a fresh interpreter."""
    return subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "my_datasets.checking.behavior_check", str(given), str(report)],
        env={
            **os.environ, "PYTHONHASHSEED": seed, "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def check(name_or_path: str, *, timeout: float = 60.0, launch: Launch = new_process) -> list[Issue]:
    """Returns the issues of a builder, errors first.

    Args:
      name_or_path: A dataset of this package, a builder's folder, or its module.
      timeout: The number of seconds in which the builder must yield its first examples.
      launch: Starts the processes in which the builder runs.

    Raises:
      DatasetNotFoundError: There is neither such a dataset nor such a path.
    """
    target = builder_files.find(name_or_path)
    if isinstance(target, Issue):
        return [target]
    issues = list(builder_files.source_issues(target))
    issues += builder_files.docs_issues(target, _valid_tags())
    if not any(issue.code in _BEFORE_ANY_RUN for issue in issues):
        issues += _behavior(target, timeout, launch)
    return sorted(dict.fromkeys(issues), key=lambda issue: issue.severity is not Severity.ERROR)


def _valid_tags() -> frozenset[str]:
    """Returns TFDS's tags, read from its file: importing TFDS would take longer than the check."""
    spec = importlib.util.find_spec("tensorflow_datasets")
    if spec is None or spec.origin is None:
        return frozenset()
    text = (Path(spec.origin).parent / "core/valid_tags.txt").read_text("utf-8")
    return frozenset(line.partition("#")[0].strip() for line in text.splitlines())


def _behavior(target: CheckTarget, timeout: float, launch: Launch) -> Iterator[Issue]:
    with tempfile.TemporaryDirectory() as directory:
        given = Path(directory) / "target.json"
        given.write_text(json.dumps({k: str(v) for k, v in vars(target).items()}), "utf-8")
        reports = [Path(directory) / f"report-{seed}.json" for seed in _SEEDS]
        running = [
            launch(given, report, seed) for seed, report in zip(_SEEDS, reports, strict=True)
        ]
        try:
            for process in running:
                process.wait(timeout)
        except subprocess.TimeoutExpired:
            yield Issue(
                "timeout", target.source.name,
                f"The builder did not yield its first examples within {timeout:g} seconds.",
                "read less before yielding, or allow more time with --timeout",
            )  # fmt: skip
            return
        finally:
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait()
        for process, report in zip(running, reports, strict=True):
            if not report.is_file():
                yield Issue(
                    "crash", target.source.name,
                    f"The process that runs the builder exited with {process.returncode}.",
                    "build a sample to see why: --max-examples-per-split 10",
                )  # fmt: skip
                return
        first, second = (json.loads(report.read_text("utf-8")) for report in reports)
    yield from map(Issue.from_json, first["issues"])
    yield from _differences(first["trace"], second["trace"])


def _differences(first: Trace, second: Trace) -> Iterator[Issue]:
    """Yields the first difference in each split between the keys or examples of two runs."""
    for split, examples in first.items():
        pairs = zip_longest(examples, second.get(split, []), fillvalue=("nothing", ""))
        for position, (one, other) in enumerate(pairs):
            if tuple(one) == tuple(other):
                continue
            node = f"split {split}, example {position}"
            if one[0] != other[0]:
                yield Issue(
                    "keys-differ", node, "The key differs between two runs.",
                    "derive keys from the input alone: no random numbers, no hash(), no order of "
                    "sets or directories",
                    found=f"{one[0]!r}, then {other[0]!r}",
                )  # fmt: skip
            else:
                yield Issue(
                    "examples-differ", node,
                    f"The example with the key {one[0]!r} differs between two runs.",
                    "derive examples from the input alone: no random numbers, no times, no order "
                    "of sets",
                )  # fmt: skip
            break
