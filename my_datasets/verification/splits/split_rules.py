"""By which rule the rows of each split were chosen, as the manifest declares it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from my_datasets.errors import SourceError, problem_of
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.sources import splitting

# What a rule says of one split only.
_OF_ONE = "part"


@dataclass(frozen=True)
class Hashed:
    """Rows were chosen by the hash of their keys, or of the groups they are of.

    Attributes:
      parts: The share of each part, in their order.
      group: The column whose values stay together; None if rows went by their keys.
      salt: What the hash is salted with.
    """

    parts: Mapping[str, float]
    group: str | None
    salt: str

    @property
    def column(self) -> str | None:
        """The column by which rows were split, if they were by one."""
        return self.group


@dataclass(frozen=True)
class Stratified:
    """Each part has its share of the rows of each class.

    Attributes:
      parts: The share of each part, in their order.
      column: The column of the classes.
    """

    parts: Mapping[str, float]
    column: str


@dataclass(frozen=True)
class ValueSplit:
    """Each part has the rows with some values.

    Attributes:
      groups: The values of each part.
      column: The column of the values.
    """

    groups: Mapping[str, tuple[Any, ...]]
    column: str

    @property
    def parts(self) -> Mapping[str, tuple[Any, ...]]:
        """The parts, by their names."""
        return self.groups


Rule = Hashed | Stratified | ValueSplit


@dataclass(frozen=True)
class Declaration:
    """A rule, and the splits that it made.

    Attributes:
      rule: The rule.
      splits: The split that is each part; not all parts need be splits.
      feature: The feature that holds the column by which rows were split; None if none does.
    """

    rule: Rule
    splits: Mapping[str, str]
    feature: str | None

    @property
    def is_whole(self) -> bool:
        """Whether each part is a split."""
        return self.splits.keys() == self.rule.parts.keys()


def read(declared: Mapping[str, Any]) -> tuple[list[Declaration], list[str]]:
    """Returns the rules, and notes on those that cannot be understood.

    Args:
      declared: The field `splits` of a manifest.
    """
    by_rule: dict[str, dict[str, str]] = {}
    rules: dict[str, tuple[Rule, str | None]] = {}
    notes: list[str] = []
    for split, said in declared.items():
        try:
            rule = _rule(said)
            feature = said.get("stored", rule.column)
            part = said[_OF_ONE]
            if part not in rule.parts:
                raise ValueError(f"no part is called {part!r}")
        except (SourceError, *MALFORMED) as error:
            notes.append(
                f"by which rule the rows of split {split} were chosen: the manifest's is not "
                f"known here ({problem_of(error)})"
            )
            continue
        same = json.dumps({**said, _OF_ONE: None}, sort_keys=True)
        rules[same] = rule, feature
        members = by_rule.setdefault(same, {})
        if part in members:
            notes.append(
                f"by which rule the rows of split {split} were chosen: it is said to be the same "
                f"part as split {members[part]}"
            )
            continue
        members[part] = split
    found = []
    for same, members in by_rule.items():
        rule, feature = rules[same]
        in_order = {part: members[part] for part in rule.parts if part in members}
        found.append(Declaration(rule, in_order, feature))
    return found, notes


def _rule(said: Mapping[str, Any]) -> Rule:
    """Returns a rule, as `Source.split` and `Source.split_by` declare it."""
    if "groups" in said:
        return ValueSplit(
            {name: tuple(some) for name, some in said["groups"].items()}, said["column"]
        )
    order = said["order"]
    if sorted(order) != sorted(said["parts"]):
        raise ValueError("the order of the parts is that of others")
    parts = {name: float(said["parts"][name]) for name in order}
    splitting.cuts(parts)  # or they are no shares
    if said["stratify"] is not None:
        return Stratified(parts, str(said["stratify"]))
    group = said["group"]
    return Hashed(parts, None if group is None else str(group), str(said["salt"]))
