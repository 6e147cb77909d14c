"""The progress of a build."""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from my_datasets.core.logs import get_logger

_LOGGER = get_logger(__name__)
_LOG_EVERY = 10.0


@dataclass
class BuildProgress:
    """The progress of a build.

    Attributes:
      stage: `generating`, `sorting` or `writing`.
      split: The split that was worked on last.
      units_done: Finished units, of all splits.
      units: The number of units, of all splits.
      examples: Examples encoded in this build.
      bytes: Bytes of their records; while writing, bytes written.
      expected_bytes: While writing, all bytes to write; otherwise None.
      seconds: Time since the stage began.
      memory: Private resident memory of this process and its workers, in bytes.
    """

    stage: str
    split: str = ""
    units_done: int = 0
    units: int = 0
    examples: int = 0
    bytes: int = 0
    expected_bytes: int | None = None
    seconds: float = 0.0
    memory: int = 0

    @property
    def seconds_left(self) -> float | None:
        """The time left in this stage at the current pace; None if unknown."""
        if self.expected_bytes:
            done = self.bytes / self.expected_bytes
        else:
            done = self.units_done / self.units if self.units > 1 else 0.0
        return self.seconds * (1 - done) / done if done else None

    def __str__(self) -> str:
        """Returns one line for a log."""
        pace = self.examples / self.seconds if self.seconds else 0.0
        parts = [f"{self.stage} {self.split}".strip()]
        if self.stage == "generating":
            parts += [
                f"{self.units_done}/{self.units} units",
                f"{self.examples:,} examples",
                f"{pace:,.0f}/s",
            ]
        parts.append(f"{self.bytes / 1e6:,.1f} MB")
        if self.memory:
            parts.append(f"memory {self.memory / 1e6:,.0f} MB")
        left = self.seconds_left
        if left is not None:
            parts.append(f"{left:,.0f} s left")
        return ", ".join(parts)


@dataclass
class Meter:
    """Counts, and reports about once a second."""

    report: Callable[[BuildProgress], None]
    progress: BuildProgress = field(default_factory=lambda: BuildProgress("generating"))
    every: float = 1.0

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._reported_at = self._began
        self._measured_at = self._began

    def begin(self, stage: str, *, expected_bytes: int | None = None) -> None:
        """Starts a stage."""
        self._began = time.monotonic()
        self.progress.stage = stage
        self.progress.bytes = 0
        self.progress.expected_bytes = expected_bytes
        self.report_now()

    def add(self, split: str, examples: int, size: int) -> None:
        """Counts examples and bytes, and reports if it is time."""
        self.progress.split = split
        self.progress.examples += examples
        self.progress.bytes += size
        if time.monotonic() - self._reported_at >= self.every:
            self.report_now()

    def report_now(self) -> None:
        """Reports now."""
        self._reported_at = time.monotonic()
        self.progress.seconds = self._reported_at - self._began
        # This takes tens of milliseconds for large processes, too long for every stage.
        if self._reported_at - self._measured_at >= self.every:
            self._measured_at = self._reported_at
            self.progress.memory = resident_memory()
        self.report(self.progress)


def log_progress(progress: BuildProgress) -> None:
    """Logs the progress every ten seconds."""
    if progress.seconds // _LOG_EVERY != max(0.0, progress.seconds - 1.0) // _LOG_EVERY:
        _LOGGER.info("%s", progress)


def resident_memory() -> int:
    """Returns the private memory of this process and its children, in bytes; 0 if unknown."""
    total = 0
    children: list[str] = []
    with contextlib.suppress(OSError):  # not every system has this file, or lets it be read
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()
    for process in ("self", *children):
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text("ascii")
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                total += int(line.split()[1]) * 1024
    return total
