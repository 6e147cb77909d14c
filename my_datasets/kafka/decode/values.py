"""The values of messages, concatenated in one buffer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.metadata.features import Leaf
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example.columns import PADDING, Bytes, Places

# The columns of examples, and the leaves of features, nested like the features.
Columns: TypeAlias = "Mapping[str, Columns] | tuple[Columns, ...] | Array | Ragged"
Leaves: TypeAlias = "Mapping[str, Leaves] | tuple[Leaves, ...] | Leaf"


@dataclass(frozen=True)
class MessageValues:
    """The values of some messages.

    Attributes:
      data: A buffer that contains all of them, and ends with `PADDING` bytes.
      starts: Where each value begins, in the messages' order; shape [n].
      stops: Where each value ends, exclusive; shape [n].
      are_there: Whether each message has a value; one without only marks a key as deleted; shape
        [n].
    """

    data: Bytes
    starts: Places
    stops: Places
    are_there: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> "MessageValues":
        """Copies values into a buffer; None for a message without a value."""
        pieces = Pieces()
        pieces.add(values)
        return pieces.together()

    def __len__(self) -> int:
        return len(self.stops)

    def __getitem__(self, rows: slice | Places) -> "MessageValues":
        """Returns some of the values, in order, with only the part of the buffer they need."""
        starts, stops = self.starts[rows], self.stops[rows]
        begin, end = (int(starts[0]), int(stops[-1])) if len(stops) else (0, 0)
        data = self.data[begin : end + PADDING]
        return MessageValues(data, starts - begin, stops - begin, self.are_there[rows])

    def __iter__(self) -> Iterator[bytes]:
        """Yields each value; empty for a message without one."""
        view = self.data.data
        for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True):
            yield bytes(view[start:stop])

    @property
    def records(self) -> RecordBatch:
        """All values, as records."""
        return RecordBatch(self.data, self.starts, self.stops)


class Pieces:
    """Values that arrive a few at a time.

    They are copied immediately, while they are in the processor's cache, so that the memory they
    arrive in can be reused.

    Attributes:
      size: The total number of bytes.
    """

    def __init__(self) -> None:
        self._joined: list[bytes] = []
        self._sizes: list[Places] = []
        self._are_there: list[npt.NDArray[np.bool_]] = []
        self.size = 0

    def add(self, values: Sequence[bytes | None]) -> None:
        """Adds values; None for a message without a value."""
        n = len(values)
        try:
            joined = b"".join(values)  # type: ignore[arg-type]
            are_there = np.ones(n, np.bool_)
        except TypeError:
            are_there = np.array([one is not None for one in values], np.bool_)
            values = [one or b"" for one in values]
            joined = b"".join(values)  # type: ignore[arg-type]
        self._joined.append(joined)
        self._sizes.append(np.fromiter(map(len, values), np.int64, n))  # type: ignore[arg-type]
        self._are_there.append(are_there)
        self.size += len(joined)

    def __len__(self) -> int:
        return sum(map(len, self._sizes))

    @property
    def deletions(self) -> int:
        """The number of messages without a value."""
        return sum(len(one) - int(np.count_nonzero(one)) for one in self._are_there)

    def only(self, rows: Places) -> "Pieces":
        """Returns some of the values, in order."""
        found, values = Pieces(), self.together()[rows]
        present = zip(values, values.are_there.tolist(), strict=True)
        found.add([value if is_there else None for value, is_there in present])
        return found

    def together(self) -> MessageValues:
        """Returns all values added so far, concatenated."""
        data = np.frombuffer(b"".join([*self._joined, bytes(PADDING)]), np.uint8)
        sizes = np.concatenate([np.zeros(0, np.int64), *self._sizes])
        stops = np.cumsum(sizes)
        are_there = np.concatenate([np.zeros(0, np.bool_), *self._are_there])
        return MessageValues(data, stops - sizes, stops, are_there)
