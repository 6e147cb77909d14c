"""Statistics of one feature, from the columns that records were taken apart into."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.hash_sets import Hashes
from my_datasets.metadata.features import Leaf
from my_datasets.records.tf_example.columns import Bytes, Column, tensor_bytes
from my_datasets.records.tf_example.encoding import Kind
from my_datasets.statistics.distribution import Distribution
from my_datasets.statistics.images import ImageStatistics
from my_datasets.statistics.numbers import LabelStatistics, NumberStatistics, summary_of
from my_datasets.statistics.texts import TextStatistics

# Of an example's values at most about so many are put into the histogram.
_VALUES = 1024
# More classes are counted as whole numbers.
_CLASSES = 100_000


@dataclass
class FeatureStatistics:
    """Statistics of the values of one leaf of the features.

    Attributes:
      leaf: The leaf.
      expected: How many examples there will be.
      values: Those of its values.
      missing: How many examples have none, of a feature that has to have one, or may be missing.
      lengths: How many values an example has, where that differs.
    """

    leaf: Leaf
    expected: int = 0
    values: NumberStatistics | LabelStatistics | TextStatistics | ImageStatistics = field(
        init=False
    )
    missing: int = 0
    lengths: Distribution = field(default_factory=lambda: Distribution(whole=True))

    def __post_init__(self) -> None:
        self.values = _of(self.leaf, self.expected)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of records that are looked at: those of the values, and of their lengths."""
        # Of nested sequences the outermost lengths.
        return self.leaf.keys[: 2 if self.leaf.is_nested else 1]

    @property
    def has_lengths(self) -> bool:
        """Whether the number of an example's values may differ."""
        shape = () if self.leaf.form == "image" or self.leaf.encoding != "none" else self.leaf.shape
        return None in (*self.leaf.sequence, *shape)

    def add(self, data: Bytes, columns: Mapping[str, Column], hashes: Hashes) -> None:
        """Adds the values of some records.

        Args:
          data: The buffer that holds the records.
          columns: What they were taken apart into.
          hashes: Their hashes; shape [n, 32].
        """
        column = columns[self.keys[0]]
        counts = columns[self.keys[-1]].counts
        if self.leaf.is_optional or not self.has_lengths:
            self.missing += int((counts == 0).sum())
        if self.has_lengths:
            given = counts[counts > 0] if self.leaf.is_optional else counts
            self.lengths.add(given // self.each)
        self._add(data, column, hashes)

    @property
    def each(self) -> int:
        """How many stored values make one step of a sequence, or of the dimension that differs."""
        if self.leaf.is_nested or self.leaf.encoding != "none" or self.leaf.form == "image":
            return 1
        known = [size for size in (*self.leaf.sequence, *self.leaf.shape) if size is not None]
        return max(1, int(np.prod(known)))

    def _add(self, data: Bytes, column: Column, hashes: Hashes) -> None:
        # What is stored as another kind than the feature's is told where examples are decoded.
        if (
            isinstance(self.values, (NumberStatistics, LabelStatistics))
            and self.leaf.encoding == "none"
        ):
            if column.values is None or column.kind is not stored_kind(self.leaf):
                return
            values: Any = column.values
            if self.leaf.dtype == "uint64":
                values = values.view(np.uint64)
            self.values.add(values, _every(values.size, len(column.counts)))
        elif column.starts is None or column.stops is None:
            return
        elif isinstance(self.values, TextStatistics):
            self.values.add(data, column.starts, column.stops)
        else:
            view = data.data
            places = zip(column.starts.tolist(), column.stops.tolist(), strict=True)
            files = [view[a:b] for a, b in places]
            if isinstance(self.values, ImageStatistics):
                self.values.add(files, _chosen(column, hashes))
            else:
                for file in files:
                    values = tensor(self.leaf, file)
                    self.values.add(values, _every(values.size, 1))

    def merge(self, other: "FeatureStatistics") -> None:
        """Adds the values of examples that follow these."""
        self.values.merge(other.values)  # type: ignore[arg-type]  # of the same leaf
        self.missing += other.missing
        self.lengths.merge(other.lengths)

    def summary(self) -> dict[str, Any]:
        """Returns what the manifest tells of the feature."""
        kinds = {
            NumberStatistics: "number",
            LabelStatistics: "label",
            TextStatistics: "text",
            ImageStatistics: "image",
        }
        found = {"kind": kinds[type(self.values)], "missing": self.missing, **self.values.summary()}
        if self.lengths.count:
            found["values_per_example"] = summary_of(self.lengths)
        if self.leaf.sample_rate:
            found["sample_rate"] = self.leaf.sample_rate
        return found


def tensor(leaf: Leaf, stored: memoryview) -> npt.NDArray[Any]:
    """Returns the values of a tensor that is stored as bytes, shape [n]; none if it is damaged."""
    try:
        raw = tensor_bytes(leaf, stored, leaf.shape)
        found: npt.NDArray[Any] = np.frombuffer(raw, leaf.dtype)
    except (zlib.error, ValueError):
        # That is told where examples are decoded.
        return np.zeros(0, leaf.dtype)
    return found


def stored_kind(leaf: Leaf) -> Kind:
    """Returns as which kind of list the numbers of a leaf are stored."""
    return Kind.FLOAT if np.dtype(leaf.dtype).kind == "f" else Kind.INT64


def _of(
    leaf: Leaf, expected: int
) -> NumberStatistics | LabelStatistics | TextStatistics | ImageStatistics:
    if leaf.form == "image":
        return ImageStatistics(expected)
    if leaf.form == "bytes":
        return TextStatistics()
    if leaf.classes and leaf.classes <= _CLASSES:
        return LabelStatistics(leaf.labels, np.zeros(leaf.classes, np.int64))
    return NumberStatistics(leaf.dtype)


def _every(values: int, examples: int) -> int:
    return max(1, values // (_VALUES * examples))


def _chosen(column: Column, hashes: Hashes) -> npt.NDArray[np.uint64]:
    """Returns a number for each value: the hash of an example for its first one, else the most."""
    found = np.full(int(column.counts.sum()), np.iinfo(np.uint64).max, np.uint64)
    given = column.counts > 0
    firsts = np.cumsum(column.counts) - column.counts
    found[firsts[given]] = np.ascontiguousarray(hashes[given, :8]).view("<u8").reshape(-1)
    return found
