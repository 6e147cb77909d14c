"""How long each stage of a pipeline takes, where somebody wants to know."""

import contextvars
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class StallStats:
    """How long the consumer of a pipeline waited for data.

    Attributes:
      steps: The batches that were given.
      waited: Seconds that it waited for them.
      elapsed: Seconds from the first request to the last batch.
      skipped: The different examples that were skipped: see `undecodable` of `plan`.
    """

    steps: int
    waited: float
    elapsed: float
    skipped: int = 0

    @property
    def share(self) -> float:
        """The part of the time that was waiting, from 0 to 1."""
        return self.waited / self.elapsed if self.elapsed else 0.0


class StallClock:
    """Adds up how long a consumer waits: in TensorFlow, as Python would have to wait itself.

    Not in a `tf.Variable`, which would be one for each replica within a strategy's scope.
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        with tf.device("CPU:0"):
            # The steps, the seconds waited, when the first one began and when the last one came.
            self._totals = tf.raw_ops.VarHandleOp(
                dtype=tf.float64, shape=[4], shared_name=f"my_datasets-{uuid.uuid4()}"
            )
            tf.raw_ops.AssignVariableOp(
                resource=self._totals, value=tf.constant([0.0, 0, 0, 0], tf.float64)
            )

    def add(self, asked: Any) -> Any:
        """Notes a wait that is over; returns the operation."""
        now = tf.timestamp()
        old = self._read()
        first = tf.where(old[0] > 0, old[2], asked)
        new = tf.stack([old[0] + 1, old[1] + tf.maximum(now - asked, 0), first, now])
        return tf.raw_ops.AssignVariableOp(resource=self._totals, value=new)

    def stats(self) -> StallStats:
        """Returns the sums."""
        steps, waited, first, last = self._read().numpy().tolist()
        return StallStats(int(steps), waited, last - first)

    def _read(self) -> Any:
        return tf.raw_ops.ReadVariableOp(resource=self._totals, dtype=tf.float64)


_current: contextvars.ContextVar["Stopwatch | None"] = contextvars.ContextVar(
    "my_datasets_stopwatch", default=None
)


class Stopwatch:
    """Adds up the seconds that stages take in one thread, each without those within it.

    Attributes:
      seconds: Of each stage.
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        self.seconds: dict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = 0.0

    def __enter__(self) -> "Stopwatch":
        self._token = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _current.reset(self._token)

    def begin(self, stage: str) -> None:
        """A stage begins, within the one that runs."""
        self._switch()
        self._running.append(stage)

    def end(self) -> None:
        """The stage that began last ends."""
        self._switch()
        self._running.pop()

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now


class timed:  # noqa: N801 - reads as the statement it is: `with timed("read"):`
    """Takes the time of a stage, if it is wanted; else it costs a tenth of a microsecond."""

    def __init__(self, stage: str) -> None:
        """Takes the stage's name."""
        self._stage = stage

    def __enter__(self) -> None:
        self._watch = _current.get()
        if self._watch is not None:
            self._watch.begin(self._stage)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watch is not None:
            self._watch.end()
