"""What was found in the examples of a version, and what of it was declared otherwise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from my_datasets.core.hash_sets import Copies, Parts
from my_datasets.metadata import content
from my_datasets.metadata.content import ShardContent, SplitContent
from my_datasets.statistics.constraints import Constraint, Violation
from my_datasets.statistics.numbers import LabelStatistics
from my_datasets.statistics.split import SplitStatistics

# Of classes without an example so many are told.
_MOST_TOLD = 5


@dataclass(frozen=True)
class Violated:
    """Values of a split that are not what was declared of them.

    Attributes:
      place: The shard and the record of the first.
      violation: The first, with the number of all.
    """

    place: str
    violation: Violation


@dataclass
class Examined:
    """What was found in a split.

    Attributes:
      hashes: Those of the examples of each part, in their order.
      statistics: Of its examples; None if the features are of a kind that only TFDS reads.
      violated: What is not as it was declared, by feature and rule.
      values: Hashes of the values that must be unique, by feature; parts as of `hashes`.
    """

    hashes: Parts = field(default_factory=Parts)
    statistics: SplitStatistics | None = None
    violated: dict[tuple[str, str], Violated] = field(default_factory=dict)
    values: dict[str, Parts] = field(default_factory=dict)

    def content(self, shards: Sequence[ShardContent]) -> SplitContent:
        """Returns what the manifest says of the examples.

        Args:
          shards: The shards they are in.
        """
        return SplitContent(
            self.hashes.hashes, content.ordered(self.hashes),
            content.unordered(self.hashes), tuple(shards),
        )  # fmt: skip


def note(found: dict[tuple[str, str], Violated], key: tuple[str, str], one: Violated) -> None:
    """Adds values that are not what was declared to others of the same feature and rule.

    Args:
      found: Those that were found before, by feature and rule.
      key: The feature and the rule.
      one: The values, which come after those.
    """
    first = found.setdefault(key, one)
    if first is not one:
        count = first.violation.count + one.violation.count
        found[key] = Violated(first.place, replace(first.violation, count=count))


def violations(
    found: Mapping[str, Examined], declared: Mapping[str, Constraint]
) -> Iterator[tuple[str, str]]:
    """Yields features and what does not hold of them in a split, or between splits.

    Args:
      found: What was found.
      declared: What was declared, by the names of features.
    """
    for name, split in found.items():
        for place, one in ((each.place, each.violation) for each in split.violated.values()):
            others = f", and {one.count - 1:,} more" if one.count > 1 else ""
            rule = one.rule if one.expected == str(True) else f"{one.rule} is {one.expected}"
            there = one.found or "nothing"
            yield one.feature, f"{rule}; found {there} in {name} ({place}{others})"
        for feature in split.statistics.features if split.statistics else []:
            constraint = declared.get(feature.leaf.name)
            if constraint and constraint.all_labels and isinstance(feature.values, LabelStatistics):
                missing = feature.values.without_examples()
                if missing:
                    told = ", ".join(missing[:_MOST_TOLD])
                    yield feature.leaf.name, f"all_labels; {name} has no {told}"
    for feature_name, constraint in declared.items():
        if constraint.unique:
            yield from _repeated(feature_name, found)


def _repeated(feature: str, found: Mapping[str, Examined]) -> Iterator[tuple[str, str]]:
    """Yields the feature and a few words if values come twice."""
    parts = {name: split.values.get(feature, Parts()) for name, split in found.items()}
    copies = Copies.of(Parts(path for some in parts.values() for path in some.paths), 1)
    for first in copies.places:
        sizes = {name: some.hashes for name, some in parts.items()}
        one, other = (_counted_in(sizes, place) for place in first)
        told = f"unique; found {copies.copies:,} that came before, such as {other}, as {one}"
        yield feature, told


def _counted_in(sizes: Mapping[str, int], place: int) -> str:
    for name, size in sizes.items():
        if place < size:
            return f"value {place:,} of {name}"
        place -= size
    raise IndexError(place)
