"""Statistics of the examples of a split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from my_datasets.core.hash_sets import Hashes
from my_datasets.metadata.features import Leaf
from my_datasets.records.tf_example.columns import Bytes, Column
from my_datasets.statistics.feature import FeatureStatistics


@dataclass
class SplitStatistics:
    """Statistics of some examples of a split.

    Statistics of consecutive parts can be merged into those of the whole.

    Attributes:
      leaves: The leaf features.
      expected: The number of examples in the whole split.
      examples: The number of examples so far.
      features: The statistics of each leaf.
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
        """Adds records.

        Args:
          data: The buffer with the records.
          columns: The parsed columns of the records, one per key in `keys`.
          hashes: The hashes of the records; shape [n, 32].
        """
        self.examples += len(hashes)
        for feature in self.features:
            feature.add(data, columns, hashes)

    def merge(self, other: "SplitStatistics") -> None:
        """Adds the statistics of the examples that follow these."""
        self.examples += other.examples
        for mine, its in zip(self.features, other.features, strict=True):
            mine.merge(its)

    def summary(self) -> dict[str, Any]:
        """Returns the split's entry in the manifest, as JSON."""
        return {
            "examples": self.examples,
            "features": {one.leaf.name: one.summary() for one in self.features},
        }
