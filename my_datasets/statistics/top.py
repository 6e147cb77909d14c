"""The most frequent values."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from my_datasets.statistics.distinct import Hashes, different

# Up to this many values are counted exactly, and this many are listed.
_COUNTED = 1000
_TOLD = 20
# At most 2**12 texts are kept. A count is then off by at most 3.5 / 2**12 of the total: see
# https://datasketches.apache.org/docs/Frequency/FrequentItemsErrorTable.html
_LOG_KEPT = 12


@dataclass
class Top:
    """The frequency of each value, counted exactly for up to 1,000 distinct values.

    With more distinct texts, the frequent ones are estimated by the frequent items sketch of Apache
    DataSketches (Anderson et al., A high-performance algorithm for identifying frequent items in
    data streams, 2017). With more distinct numbers, which are then measurements, none is listed.

    Attributes:
      is_of_texts: Whether the values are texts.
      counts: The value and its count by the value's hash; None if there are too many.
    """

    is_of_texts: bool = False
    counts: dict[int, tuple[Any, int]] | None = field(default_factory=dict)
    # The serialized sketch, so that it can be sent between processes.
    _sketch: bytes | None = None

    def add(self, hashes: Hashes, value: Callable[[int], Any]) -> None:
        """Adds values.

        Args:
          hashes: The hash of each value; shape [n].
          value: Returns the value at an index.
        """
        if self.counts is None and not self.is_of_texts:
            return
        if not self.is_of_texts and len(different(hashes[: 2 * _COUNTED])) > _COUNTED:
            self.counts = None  # detects measurements early
            return
        found, first, times = np.unique(hashes, return_index=True, return_counts=True)
        if len(found) > _COUNTED and not self.is_of_texts:
            self.counts = None
            return
        each = zip(found.tolist(), first.tolist(), times.tolist(), strict=True)
        if self.counts is None or len(found) > _COUNTED:
            self._sketched((value(place), count) for _, place, count in each)
            return
        for key, place, count in each:
            known = self.counts.get(key)
            self.counts[key] = (known[0], known[1] + count) if known else (value(place), count)
        if len(self.counts) > _COUNTED:
            self._sketched(())

    def merge(self, other: "Top") -> None:
        """Adds the values of another instance, which follow these."""
        if other.counts is None:
            self._sketched((), other._sketch)
        elif self.counts is None:
            self._sketched(other.counts.values())
        else:
            for key, (value, count) in other.counts.items():
                self.counts[key] = (value, self.counts.get(key, (value, 0))[1] + count)
            if len(self.counts) > _COUNTED:
                self._sketched(())

    def _sketched(self, values: Iterable[tuple[Any, int]], other: bytes | None = None) -> None:
        """Switches to a sketch, and adds values to it."""
        counted, self.counts = self.counts or {}, None
        if not self.is_of_texts:
            return
        from datasketches import frequent_strings_sketch as sketches

        sketch = sketches.deserialize(self._sketch) if self._sketch else sketches(_LOG_KEPT)
        for value, count in (*counted.values(), *values):
            sketch.update(value, count)
        if other:
            sketch.merge(sketches.deserialize(other))
        self._sketch = sketch.serialize()

    def most(self) -> list[tuple[Any, int]]:
        """Returns the most frequent values and their counts, in descending order.

        A value from a sketch is listed only if it is certainly more frequent than any value not
        listed.
        """
        if self.counts is not None:
            found = list(self.counts.values())
        elif self._sketch is None:
            return []
        else:
            from datasketches import frequent_items_error_type, frequent_strings_sketch

            sketch = frequent_strings_sketch.deserialize(self._sketch)
            sure = frequent_items_error_type.NO_FALSE_POSITIVES
            found = [(value, least) for value, _, least, _ in sketch.get_frequent_items(sure)]
        return sorted(found, key=lambda one: (-one[1], str(one[0])))[:_TOLD]

    @property
    def is_exact(self) -> bool:
        """Whether all values are counted exactly."""
        return self.counts is not None
