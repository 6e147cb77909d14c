"""How long training waits for data, counted in TensorFlow."""

import uuid
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class Stats:
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


class Clock:
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

    def stats(self) -> Stats:
        """Returns the sums."""
        steps, waited, first, last = self._read().numpy().tolist()
        return Stats(int(steps), waited, last - first)

    def _read(self) -> Any:
        return tf.raw_ops.ReadVariableOp(resource=self._totals, dtype=tf.float64)
