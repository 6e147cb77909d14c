"""How far a long operation is, for callers that show it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Progress:
    """How far a stage of an operation is.

    Attributes:
      stage: What is being done, such as `uploading`, or the file, split or dataset just finished.
      done: How much is done, in bytes, examples or datasets.
      total: How much there is in all.
      seconds: Time since the stage began; 0 where it is not measured.
    """

    stage: str
    done: int
    total: int
    seconds: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """The time left at the pace so far; None if that is not known yet."""
        return self.seconds * (self.total - self.done) / self.done if self.done > 0 else None

    def __str__(self) -> str:
        """Returns one line for a log; `done` and `total` are bytes."""
        left = "" if self.seconds_left is None else f", {self.seconds_left:,.0f} s left"
        return f"{self.stage} {self.done / 1e6:,.1f} of {self.total / 1e6:,.1f} MB{left}"


OnProgress: TypeAlias = Callable[[Progress], None]


def ignore(_: object) -> None:
    """Shows no progress."""
