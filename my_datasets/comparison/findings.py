"""Results of examining the examples of a version, with the violations of its constraints."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from my_datasets.core.hash_sets import DuplicateHashes, HashFiles
from my_datasets.metadata import content
from my_datasets.metadata.content import ShardContent, SplitContent
from my_datasets.statistics.constraints import Constraint, Violation
from my_datasets.statistics.feature import SplitStatistics
from my_datasets.statistics.values import LabelStatistics

# Maximum number of classes without examples to list.
_MOST_TOLD = 5


@dataclass(frozen=True)
class Violated:
    """Values of a split that violate a constraint.

    Attributes:
      place: The shard and the record of the first violation.
      violation: The first violation, with the total count.
    """

    place: str
    violation: Violation


@dataclass
class Examined:
    """The results for a split.

    Attributes:
      hashes: The hashes of the examples of each part, in order.
      statistics: The statistics of the examples; None if only TFDS can read the features.
      violated: The constraint violations, by feature and rule.
      values: The hashes of values that must be unique, by feature; in the same parts as `hashes`.
    """

    hashes: HashFiles = field(default_factory=HashFiles)
    statistics: SplitStatistics | None = None
    violated: dict[tuple[str, str], Violated] = field(default_factory=dict)
    values: dict[str, HashFiles] = field(default_factory=dict)

    def content(self, shards: Sequence[ShardContent]) -> SplitContent:
        """Returns the manifest's entry on the examples.

        Args:
          shards: The shards with the examples.
        """
        return SplitContent(
            self.hashes.hashes, content.ordered(self.hashes),
            content.unordered(self.hashes), tuple(shards),
        )  # fmt: skip


def note(found: dict[tuple[str, str], Violated], key: tuple[str, str], one: Violated) -> None:
    """Adds violations to earlier ones of the same feature and rule.

    Args:
      found: The earlier violations, by feature and rule; updated in place.
      key: The feature and the rule.
      one: The violations to add, which come after the earlier ones.
    """
    first = found.setdefault(key, one)
    if first is not one:
        count = first.violation.count + one.violation.count
        found[key] = Violated(first.place, replace(first.violation, count=count))


def violations(
    found: Mapping[str, Examined], declared: Mapping[str, Constraint]
) -> Iterator[tuple[str, str]]:
    """Yields each feature with a violated constraint, and a description of the violation.

    Args:
      found: The results by split.
      declared: The declared constraints, by feature name.
    """
    for name, split in found.items():
        for place, one in ((each.place, each.violation) for each in split.violated.values()):
            others = f", and {one.count - 1:,} more" if one.count > 1 else ""
            rule = one.rule if one.expected == str(True) else f"{one.rule} is {one.expected}"
            shown = one.found or "nothing"
            yield one.feature, f"{rule}; found {shown} in {name} ({place}{others})"
        for feature in split.statistics.features if split.statistics else []:
            constraint = declared.get(feature.leaf.name)
            if constraint and constraint.all_labels and isinstance(feature.values, LabelStatistics):
                missing = feature.values.without_examples()
                if missing:
                    missing_values = ", ".join(missing[:_MOST_TOLD])
                    yield feature.leaf.name, f"all_labels; {name} has no {missing_values}"
    for feature_name, constraint in declared.items():
        if constraint.unique:
            yield from _repeated(feature_name, found)


def _repeated(feature: str, found: Mapping[str, Examined]) -> Iterator[tuple[str, str]]:
    """Yields the feature and a description if values are not unique."""
    parts = {name: split.values.get(feature, HashFiles()) for name, split in found.items()}
    copies = DuplicateHashes.of(
        HashFiles(path for some in parts.values() for path in some.paths), 1
    )
    for first in copies.places:
        sizes = {name: some.hashes for name, some in parts.items()}
        one, other = (_counted_in(sizes, place) for place in first)
        message = f"unique; found {copies.copies:,} that came before, such as {other}, as {one}"
        yield feature, message


def _counted_in(sizes: Mapping[str, int], place: int) -> str:
    for name, size in sizes.items():
        if place < size:
            return f"value {place:,} of {name}"
        place -= size
    raise IndexError(place)
