"""The rules by which rows were assigned to splits, as declared in the manifest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from my_datasets.core.json_types import JsonObject
from my_datasets.errors import SourceError, problem_of
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.sources import splitting

# The member of a rule that differs between its splits.
_OF_ONE = "part"


@dataclass(frozen=True)
class Hashed:
    """Rows were assigned by the hash of their keys or groups.

    Attributes:
      parts: The share of each part, in order.
      group: The column of the groups; None if rows were assigned by key.
      salt: The salt of the hash.
    """

    parts: Mapping[str, float]
    group: str | None
    salt: str

    @property
    def column(self) -> str | None:
        """The column by which rows were split, if any."""
        return self.group


@dataclass(frozen=True)
class Stratified:
    """Each part has its share of the rows of each class in `column`."""

    parts: Mapping[str, float]
    column: str


@dataclass(frozen=True)
class ValueSplit:
    """Each part has the rows with some values of `column`."""

    groups: Mapping[str, tuple[object, ...]]
    column: str

    @property
    def parts(self) -> Mapping[str, tuple[object, ...]]:
        """The values of each part."""
        return self.groups


Rule = Hashed | Stratified | ValueSplit


@dataclass(frozen=True)
class Declaration:
    """A rule, and the splits that it made.

    Attributes:
      rule: The rule.
      splits: The split of each part; some parts may have none.
      feature: The feature that stores the column by which rows were split, if any.
    """

    rule: Rule
    splits: Mapping[str, str]
    feature: str | None

    @property
    def is_whole(self) -> bool:
        """Whether each part is a split."""
        return self.splits.keys() == self.rule.parts.keys()


def read(declared: JsonObject) -> tuple[list[Declaration], list[str]]:
    """Returns the rules in a manifest's field `splits`, and notes on unknown ones."""
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
                f"whether the rows of split {split} follow their rule: the rule in the manifest is "
                f"unknown ({problem_of(error)})"
            )
            continue
        same = json.dumps({**said, _OF_ONE: None}, sort_keys=True)
        rules[same] = rule, feature
        members = by_rule.setdefault(same, {})
        if part in members:
            notes.append(
                f"whether the rows of split {split} follow their rule: it is declared as the same "
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


def _rule(said: JsonObject) -> Rule:
    """Parses a rule that `Source.split` or `Source.split_by` declared."""
    if "groups" in said:
        return ValueSplit(
            {name: tuple(some) for name, some in said["groups"].items()}, said["column"]
        )
    order = said["order"]
    if sorted(order) != sorted(said["parts"]):
        raise ValueError("the order names other parts")
    parts = {name: float(said["parts"][name]) for name in order}
    splitting.cuts(parts)  # raises if they are not shares
    if said["stratify"] is not None:
        return Stratified(parts, str(said["stratify"]))
    group = said["group"]
    return Hashed(parts, None if group is None else str(group), str(said["salt"]))
