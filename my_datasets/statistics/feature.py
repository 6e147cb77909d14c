"""Statistics of each feature and of a split's examples, from the parsed columns of records."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array
from my_datasets.core.hash_sets import Hashes
from my_datasets.metadata.features import Leaf
from my_datasets.records.tf_example.columns import Bytes, Column, tensor_bytes
from my_datasets.records.tf_example.encoding import Kind
from my_datasets.statistics.sketches import Distribution
from my_datasets.statistics.values import (
    ImageStatistics,
    LabelStatistics,
    NumberStatistics,
    TextStatistics,
    summary_of,
)

# Approximate maximum number of values per example that go into the histogram.
_VALUES = 1024
# With more classes, labels are treated as integers.
_CLASSES = 100_000


@dataclass
class FeatureStatistics:
    """Statistics of the values of one leaf feature.

    Attributes:
      expected: The expected number of examples.
      missing: The number of examples without a value, if the feature is required or optional.
      lengths: The number of values per example, where that varies.
    """

    leaf: Leaf
    expected: int = 0
    values: NumberStatistics | LabelStatistics | TextStatistics | ImageStatistics = field(
        init=False
    )
    missing: int = 0
    lengths: Distribution = field(default_factory=lambda: Distribution(whole=True))

    def __post_init__(self) -> None:
        self.values = _statistics_of(self.leaf, self.expected)

    @property
    def keys(self) -> tuple[str, ...]:
        """The record keys to read: that of the values, and that of their lengths."""
        # For nested sequences, the outermost lengths.
        return self.leaf.keys[: 2 if self.leaf.is_nested else 1]

    @property
    def has_lengths(self) -> bool:
        """Whether the number of values per example may vary."""
        shape = () if self.leaf.form == "image" or self.leaf.encoding != "none" else self.leaf.shape
        return None in (*self.leaf.sequence, *shape)

    def add(self, data: Bytes, columns: Mapping[str, Column], hashes: Hashes) -> None:
        """Adds the values of the records in a buffer; the hashes have shape [n, 32]."""
        column = columns[self.keys[0]]
        counts = columns[self.keys[-1]].counts
        if self.leaf.is_optional or not self.has_lengths:
            self.missing += int((counts == 0).sum())
        if self.has_lengths:
            given = counts[counts > 0] if self.leaf.is_optional else counts
            self.lengths.add(given // self.values_per_step)
        self._add(data, column, hashes)

    @property
    def values_per_step(self) -> int:
        """The number of stored values per step of a sequence, or of the variable dimension."""
        if self.leaf.is_nested or self.leaf.encoding != "none" or self.leaf.form == "image":
            return 1
        known = [size for size in (*self.leaf.sequence, *self.leaf.shape) if size is not None]
        return max(1, int(np.prod(known)))

    def _add(self, data: Bytes, column: Column, hashes: Hashes) -> None:
        # Decoding the examples reports values stored as another kind than the feature's.
        if (
            isinstance(self.values, (NumberStatistics, LabelStatistics))
            and self.leaf.encoding == "none"
        ):
            if column.values is None or column.kind is not stored_kind(self.leaf):
                return
            values: Array = column.values
            if self.leaf.dtype == "uint64":
                values = values.view(np.uint64)
            self.values.add(values, _histogram_step(values.size, len(column.counts)))
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
                    self.values.add(values, _histogram_step(values.size, 1))

    def merge(self, other: "FeatureStatistics") -> None:
        """Adds the statistics of the examples that follow these."""
        self.values.merge(other.values)  # type: ignore[arg-type]  # of the same leaf
        self.missing += other.missing
        self.lengths.merge(other.lengths)

    def summary(self) -> dict[str, object]:
        """Returns the feature's entry in the manifest."""
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


def tensor(leaf: Leaf, stored: memoryview) -> Array:
    """Returns the values of a tensor stored as bytes, shape [n]; empty if it is damaged."""
    try:
        raw = tensor_bytes(leaf, stored, leaf.shape)
        found: Array = np.frombuffer(raw, leaf.dtype)
    except (zlib.error, ValueError):
        # Decoding the examples reports this.
        return np.zeros(0, leaf.dtype)
    return found


def stored_kind(leaf: Leaf) -> Kind:
    """Returns the kind of list in which the numbers of a leaf are stored."""
    return Kind.FLOAT if np.dtype(leaf.dtype).kind == "f" else Kind.INT64


def _statistics_of(
    leaf: Leaf, expected: int
) -> NumberStatistics | LabelStatistics | TextStatistics | ImageStatistics:
    if leaf.form == "image":
        return ImageStatistics(expected)
    if leaf.form == "bytes":
        return TextStatistics()
    if leaf.classes and leaf.classes <= _CLASSES:
        return LabelStatistics(leaf.labels, np.zeros(leaf.classes, np.int64))
    return NumberStatistics(leaf.dtype)


def _histogram_step(values: int, examples: int) -> int:
    return max(1, values // (_VALUES * examples))


def _chosen(column: Column, hashes: Hashes) -> npt.NDArray[np.uint64]:
    """Returns one number per value: an example's hash for its first value, else the maximum."""
    found = np.full(int(column.counts.sum()), np.iinfo(np.uint64).max, np.uint64)
    given = column.counts > 0
    firsts = np.cumsum(column.counts) - column.counts
    found[firsts[given]] = np.ascontiguousarray(hashes[given, :8]).view("<u8").reshape(-1)
    return found


@dataclass
class SplitStatistics:
    """Statistics of some examples of a split.

    Statistics of consecutive parts can be merged into those of the whole.

    Attributes:
      expected: The number of examples in the whole split.
      examples: The number of examples so far.
    """

    leaves: Sequence[Leaf]
    expected: int = 0
    examples: int = 0
    features: list[FeatureStatistics] = field(init=False)

    def __post_init__(self) -> None:
        self.features = [FeatureStatistics(leaf, self.expected) for leaf in self.leaves]

    @property
    def keys(self) -> list[str]:
        """The record keys to read."""
        return [key for feature in self.features for key in feature.keys]

    def add(self, data: Bytes, columns: Mapping[str, Column], hashes: Hashes) -> None:
        """Adds the records in a buffer; one column per key in `keys`, hashes of shape [n, 32]."""
        self.examples += len(hashes)
        for feature in self.features:
            feature.add(data, columns, hashes)

    def merge(self, other: "SplitStatistics") -> None:
        """Adds the statistics of the examples that follow these."""
        self.examples += other.examples
        for mine, its in zip(self.features, other.features, strict=True):
            mine.merge(its)

    def summary(self) -> dict[str, object]:
        """Returns the split's entry in the manifest, as JSON."""
        return {
            "examples": self.examples,
            "features": {one.leaf.name: one.summary() for one in self.features},
        }
