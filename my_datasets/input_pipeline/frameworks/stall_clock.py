"""How long the consumer of a pipeline waits for data."""

import uuid
from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class StallStats:
    """How long the consumer of a pipeline waited for data.

    Attributes:
      steps: The number of batches delivered.
      waited: Seconds spent waiting for them.
      elapsed: Seconds from the first request to the last batch.
      skipped: The number of distinct examples skipped: see `undecodable` of `plan`.
    """

    steps: int
    waited: float
    elapsed: float
    skipped: int = 0

    @property
    def share(self) -> float:
        """The fraction of the time spent waiting, from 0 to 1."""
        return self.waited / self.elapsed if self.elapsed else 0.0


class StallClock:
    """Adds up how long a consumer waits; in TensorFlow, because a call of Python would wait, too.

    It does not use a `tf.Variable`, which in a strategy's scope has one copy per replica.
    """

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            # Steps, seconds waited, when the first wait began, when the last batch arrived.
            self._totals = tf.raw_ops.VarHandleOp(
                dtype=tf.float64, shape=[4], shared_name=f"my_datasets-{uuid.uuid4()}"
            )
            tf.raw_ops.AssignVariableOp(
                resource=self._totals, value=tf.constant([0.0, 0, 0, 0], tf.float64)
            )

    def add(self, asked: tf.Tensor) -> tf.Operation:
        """Records a wait that began at `asked` and is over; returns the operation."""
        now = tf.timestamp()
        old = self._read()
        first = tf.where(old[0] > 0, old[2], asked)
        new = tf.stack([old[0] + 1, old[1] + tf.maximum(now - asked, 0), first, now])
        return tf.raw_ops.AssignVariableOp(resource=self._totals, value=new)

    def stats(self) -> StallStats:
        """Returns the totals so far, without `skipped`."""
        steps, waited, first, last = self._read().numpy().tolist()
        return StallStats(int(steps), waited, last - first)

    def _read(self) -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=self._totals, dtype=tf.float64)
