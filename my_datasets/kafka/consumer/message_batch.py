"""Batches of messages from the consumer, without the Python objects they arrive as."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.kafka.consumer.connection import kafka
from my_datasets.kafka.decode.values import Pieces

Numbers = npt.NDArray[np.int64]

# Message objects alive at the same time. Python's garbage collector runs over them, and now and
# then over all other objects, whenever there are 700 more than before; this many are freed before
# that.
AT_ONCE = 512


class Taken:
    """The contents of messages, and their partitions and offsets.

    Attributes:
      pieces: The content of each message.
    """

    def __init__(self) -> None:
        self.pieces = Pieces()
        self._partitions: list[Numbers] = []
        self._offsets: list[Numbers] = []

    def add(self, messages: Sequence[Any]) -> None:
        """Adds messages, none of which may be an error."""
        message, n = kafka().Message, len(messages)
        self._partitions.append(np.fromiter(map(message.partition, messages), np.int64, n))
        self._offsets.append(np.fromiter(map(message.offset, messages), np.int64, n))
        self.pieces.add(list(map(message.value, messages)))

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def partitions(self) -> Numbers:
        """The partition of each message; shape [n]."""
        return _joined(self._partitions)

    @property
    def offsets(self) -> Numbers:
        """The offset of each message; shape [n]."""
        return _joined(self._offsets)


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
