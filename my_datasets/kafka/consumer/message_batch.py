"""Messages that were taken from the consumer, without the objects they come as."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.kafka.consumer.connection import kafka
from my_datasets.kafka.decode.values import Pieces

Numbers = npt.NDArray[np.int64]

# Messages that are objects at the same time. Python's garbage collector looks through them, and now
# and then through all else, whenever there are 700 more than before: fewer are gone by then.
AT_ONCE = 512


class Taken:
    """What messages hold, and where they were.

    Attributes:
      pieces: What each holds.
    """

    def __init__(self) -> None:
        """Begins with none."""
        self.pieces = Pieces()
        self._partitions: list[Numbers] = []
        self._offsets: list[Numbers] = []

    def add(self, messages: Sequence[Any]) -> None:
        """Adds messages, none of which is an error."""
        message, n = kafka().Message, len(messages)
        self._partitions.append(np.fromiter(map(message.partition, messages), np.int64, n))
        self._offsets.append(np.fromiter(map(message.offset, messages), np.int64, n))
        self.pieces.add(list(map(message.value, messages)))

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def partitions(self) -> Numbers:
        """The partition of each; shape [n]."""
        return _joined(self._partitions)

    @property
    def offsets(self) -> Numbers:
        """The offset of each; shape [n]."""
        return _joined(self._offsets)


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
