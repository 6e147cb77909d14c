"""What messages hold, side by side in one buffer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example.columns import PADDING, Bytes, Places


@dataclass(frozen=True)
class MessageValues:
    """The values of some messages.

    Attributes:
      data: A buffer with all of them somewhere, and `PADDING` bytes at its end.
      starts: Where each of them begins, in their order; shape [n].
      stops: The position after each.
      are_there: Whether there is one; without, a message only says that a key was deleted.
    """

    data: Bytes
    starts: Places
    stops: Places
    are_there: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> "MessageValues":
        """Returns values that are in memory; None where there is none."""
        pieces = Pieces()
        pieces.add(values)
        return pieces.together()

    def __len__(self) -> int:
        return len(self.stops)

    def __getitem__(self, rows: slice | Places) -> "MessageValues":
        """Returns some of them, in their order, and of the buffer no more than they need."""
        starts, stops = self.starts[rows], self.stops[rows]
        begin, end = (int(starts[0]), int(stops[-1])) if len(stops) else (0, 0)
        data = self.data[begin : end + PADDING]
        return MessageValues(data, starts - begin, stops - begin, self.are_there[rows])

    def __iter__(self) -> Iterator[bytes]:
        """Yields each, empty where there is none."""
        view = self.data.data
        for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True):
            yield bytes(view[start:stop])

    @property
    def records(self) -> RecordBatch:
        """All of them, as records."""
        return RecordBatch(self.data, self.starts, self.stops)


class Pieces:
    """Values that come a few at a time.

    They are copied at once, as long as the processor's cache holds them, and the memory they come
    in is free for the next ones.

    Attributes:
      size: The bytes of all of them.
    """

    def __init__(self) -> None:
        """Begins with none."""
        self._joined: list[bytes] = []
        self._sizes: list[Places] = []
        self._are_there: list[npt.NDArray[np.bool_]] = []
        self.size = 0

    def add(self, values: Sequence[bytes | None]) -> None:
        """Adds values; None where there is none."""
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
        """How many have no value."""
        return sum(len(one) - int(np.count_nonzero(one)) for one in self._are_there)

    def only(self, rows: Places) -> "Pieces":
        """Returns some of them, in their order."""
        found, values = Pieces(), self.together()[rows]
        there = zip(values, values.are_there.tolist(), strict=True)
        found.add([value if is_there else None for value, is_there in there])
        return found

    def together(self) -> MessageValues:
        """Returns all that were added, side by side."""
        data = np.frombuffer(b"".join([*self._joined, bytes(PADDING)]), np.uint8)
        sizes = np.concatenate([np.zeros(0, np.int64), *self._sizes])
        stops = np.cumsum(sizes)
        are_there = np.concatenate([np.zeros(0, np.bool_), *self._are_there])
        return MessageValues(data, stops - sizes, stops, are_there)
