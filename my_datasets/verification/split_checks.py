"""Checks splits that were made by hashes of groups or keys.

`allowed` bounds how far a count may be from its share by chance.

`check_valued` and `check_stratified` check splits by values; `hashed_splits` checks those by
hashes.
"""

import bisect
import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.comparison.version_metadata import REBUILD
from my_datasets.core.issue import Issue
from my_datasets.metadata.manifest import Manifest
from my_datasets.sources import splitting
from my_datasets.verification import split_rules
from my_datasets.verification.shard_reading import ObservedShard
from my_datasets.verification.split_rules import (
    ColumnHashes,
    Counts,
    Declaration,
    DistinctValues,
    Hashed,
    Keys,
    SplitColumn,
    Stratified,
    ValueSplit,
)

# The probability of a false alarm.
LEVEL = 1e-9

_SHOWN = 3
_FIX = f"{REBUILD}; if rows were moved on purpose, declare their new rule"
# Misplaced groups are reported only if the probability is below this that the texts differ from
# those of the source, as for dates that are stored as numbers.
_SURE = 1e-6


def log_bound(count: int, total: int, share: float) -> float:
    """Returns the logarithm of a bound on the probability of a count at least this far off.

    `share` is the expected part of the `total` draws, from 0 to 1. For independent draws the
    logarithm is `-total * KL(count / total, share)`: W. Hoeffding, "Probability inequalities for
    sums of bounded random variables", Journal of the American Statistical Association 58 (1963),
    theorem 1 (the bound of Chernoff).
    """
    if not total:
        return 0.0
    found = count / total
    divergence = 0.0
    for actual, expected in ((found, share), (1 - found, 1 - share)):
        if actual > 0:
            divergence += actual * math.log(actual / expected) if expected > 0 else math.inf
    return -total * divergence


def allowed(total: int, share: float, level: float = LEVEL) -> tuple[int, int]:
    """Returns the minimum and maximum count to expect of a part in `total` draws.

    A count lies outside with a probability below `level`.
    """
    least = math.log(level / 2)  # on each side
    middle = round(total * share)

    def is_too_far(count: int) -> bool:
        return log_bound(count, total, share) < least

    low = bisect.bisect_left(range(middle), True, key=lambda count: not is_too_far(count))
    beyond = bisect.bisect_left(range(middle, total + 1), True, key=is_too_far)
    return low, middle + max(0, beyond - 1)


def check_groups(
    declaration: Declaration,
    rule: Hashed,
    column: SplitColumn,
    not_checked: list[str],
    *,
    shares: bool = True,
) -> Iterator[Issue]:
    """Yields groups in two splits or in the wrong split, and splits with wrong `shares`.

    Adds a note to `not_checked` if the texts of groups are unknown.
    """
    splits = list(declaration.splits.values())
    shared = {pair: _SharedGroups() for pair in itertools.combinations(splits, 2)}
    separate = {split: _SeparateGroups() for split in splits}
    groups = dict.fromkeys(splits, 0)
    for found in column.pieces():
        in_two: list[Keys] = [np.zeros(0, "S16")]
        for (one, other), some in shared.items():
            keys, a, b = np.intersect1d(
                found[one].keys, found[other].keys, assume_unique=True, return_indices=True
            )
            in_two.append(keys)
            some.add(found[one].first[a], found[other].first[b])
        for part, split in declaration.splits.items():
            values = found[split]
            groups[split] += len(values.keys)
            # Groups in two splits have another issue.
            separate[split].add(values, ~np.isin(values.keys, np.concatenate(in_two)), rule, part)
    for (one, other), some in shared.items():
        if some.count:
            yield _shared_issue(column, one, other, some)
    yield from _misplaced_issues(declaration, rule, column, separate, not_checked)
    if shares:
        yield from check_shares(declaration, rule, groups, f"groups of {column.name}")


def check_shares(
    declaration: Declaration, rule: Hashed, counts: Mapping[str, int], what: str
) -> Iterator[Issue]:
    """Yields splits with implausible shares, given their counts of groups or examples."""
    total = sum(counts.values())
    together = math.fsum(rule.parts[part] for part in declaration.splits)
    for part, split in declaration.splits.items():
        share = min(1.0, rule.parts[part] / together)
        low, high = allowed(total, share)
        if not low <= counts[split] <= high:
            yield Issue(
                "split-share", f"split {split}",
                f"The split's share of the {what} is implausible for its rule.", _FIX,
                f"{low:,} to {high:,} of {total:,} for a share of {share:.4g} (other numbers "
                f"have a probability below {LEVEL:g})",
                f"{counts[split]:,}, a share of {counts[split] / total:.4g}",
            )  # fmt: skip


class _SharedGroups:
    def __init__(self) -> None:
        self.count = 0
        # The first few, by the numbers of their first examples.
        self.first: list[tuple[int, int]] = []

    def add(self, one: Counts, other: Counts) -> None:
        self.count += len(one)
        pairs = zip(one.tolist(), other.tolist(), strict=True)
        self.first = heapq.nsmallest(_SHOWN, [*self.first, *pairs])


class _SeparateGroups:
    """Groups in one split only, some of which may belong in another split."""

    def __init__(self) -> None:
        self.groups = 0
        self.wrong = 0
        # The first few, by the number of their first example, and where they belong.
        self.first: list[tuple[int, str]] = []

    def add(
        self, values: DistinctValues, chosen: npt.NDArray[np.bool_], rule: Hashed, part: str
    ) -> None:
        names = [*rule.parts, ""]
        ends = [end for _, end in splitting.cuts(rule.parts).values() if end < 2**64]
        belongs = np.searchsorted(np.array(ends, np.uint64), values.places, side="right")
        wrong = np.flatnonzero(chosen & (belongs != names.index(part)))
        self.groups += int(chosen.sum())
        self.wrong += len(wrong)
        first = wrong[np.argsort(values.first[wrong])[:_SHOWN]]
        misplaced = [(int(values.first[i]), names[belongs[i]]) for i in first]
        self.first = heapq.nsmallest(_SHOWN, [*self.first, *misplaced])


def _shared_issue(column: SplitColumn, one: str, other: str, some: _SharedGroups) -> Issue:
    shown = "; ".join(
        f"{column.value(one, a)}: {column.place(one, a)} and {column.place(other, b)}"
        for a, b in some.first
    )
    more = "; ..." if some.count > _SHOWN else ""
    return Issue(
        "group-in-two-splits",
        f"splits {one} and {other}, feature {column.name}, value "
        f"{column.value(one, some.first[0][0])}",
        f"{some.count:,} {'group is' if some.count == 1 else 'groups are'} in both splits.", _FIX,
        f"all examples with the same {column.name} in the same split", f"{shown}{more}",
    )  # fmt: skip


def _misplaced_issues(
    declaration: Declaration,
    rule: Hashed,
    column: SplitColumn,
    separate: Mapping[str, _SeparateGroups],
    not_checked: list[str],
) -> Iterator[Issue]:
    total = sum(some.groups for some in separate.values())
    wrong = sum(some.wrong for some in separate.values())
    if not wrong:
        return
    # The expected share of misplaced groups if they were placed independently of the rule.
    by_chance = 1 - math.fsum(
        separate[split].groups / total * rule.parts[part]
        for part, split in declaration.splits.items()
    )
    is_sure = log_bound(wrong, total, by_chance) < math.log(_SURE)
    if wrong / total >= by_chance or not is_sure:
        not_checked.append(
            f"whether each group of {column.name} is in the split of its hash: its values may be "
            "stored differently than in the source"
        )
        return
    right_places = {part: f"in split {split}" for part, split in declaration.splits.items()}
    right_places[""] = "in no split"
    for split, some in separate.items():
        if not some.wrong:
            continue
        shown = "; ".join(
            f"{column.value(split, number)}: {column.place(split, number)}; it belongs "
            f"{right_places.get(part, part)}"
            for number, part in some.first
        )
        yield Issue(
            "group-in-another-split",
            f"split {split}, feature {column.name}, value {column.value(split, some.first[0][0])}",
            f"{some.wrong:,} of its groups {'is' if some.wrong == 1 else 'are'} in the wrong "
            "split.", _FIX, "the split given by the group's hash and the declared shares",
            shown + ("; ..." if some.wrong > _SHOWN else ""),
        )  # fmt: skip


_SHOWN_VALUES = 5

# The maximum number of issues.
_MOST_ISSUES = 5


def check_valued(
    declaration: Declaration, rule: ValueSplit, column: SplitColumn, not_checked: list[str]
) -> Iterator[Issue]:
    """Yields values in the wrong split; adds a note to `not_checked` if that is unknown."""
    allowed = {part: _keys(column, values) for part, values in rule.parts.items()}
    wrong: list[Issue] = []
    count = right = 0
    for found in column.pieces():
        for part, split in declaration.splits.items():
            values = found[split]
            is_right = np.isin(values.keys, allowed[part])
            right += int(is_right.sum())
            count += int((~is_right).sum())
            for i in np.flatnonzero(~is_right)[: _SHOWN_VALUES - len(wrong)]:
                owner = next((p for p, keys in allowed.items() if values.keys[i] in keys), None)
                wrong.append(
                    Issue(
                        "value-in-another-split",
                        f"split {split}, feature {column.name}, value "
                        f"{column.value(split, int(values.first[i]))}",
                        "The split should have no examples with this value.",
                        f"{REBUILD}; or name the value for this split in split_by",
                        _shown(rule.parts[part]),
                        f"{values.counts[i]:,} examples, the first: "
                        f"{column.place(split, int(values.first[i]))}; by the rule they belong "
                        + (f"in {owner}" if owner else "in no split"),
                    )
                )  # fmt: skip
    if wrong and not right:
        not_checked.append(
            f"whether each split has the declared values of {column.name}: they may be stored "
            "differently than in the source"
        )
        return
    yield from wrong
    if count > len(wrong):
        yield Issue(
            "value-in-another-split", f"feature {column.name}",
            f"{count - len(wrong):,} more values are in splits that should not have them.", REBUILD,
        )  # fmt: skip


def _keys(column: SplitColumn, values: tuple[object, ...]) -> Keys:
    texts = [
        "" if one is None else str(one).lower() if isinstance(one, bool) else str(one)
        for one in values
    ]
    binary = pa.array(texts, pa.large_string()).cast(pa.large_binary())
    return split_rules.hashes(column.observer.salt, binary)


def _shown(values: tuple[object, ...]) -> str:
    more = ", ..." if len(values) > _SHOWN_VALUES else ""
    return ", ".join(map(repr, values[:_SHOWN_VALUES])) + more


def check_stratified(
    declaration: Declaration, rule: Stratified, column: SplitColumn, slack: int
) -> Iterator[Issue]:
    """Yields values of which a split has a wrong number of examples.

    All parts are splits. `slack` is the tolerated difference, for example because of quarantined
    examples.
    """
    shares = np.array(list(rule.parts.values()))
    splits = [declaration.splits[part] for part in rule.parts]
    shown: list[tuple[str, str, str, str]] = []
    wrong = 0
    for found in column.pieces():
        counts, first = _table(found, splits)
        off = counts - _closest(counts, shares)
        is_wrong = np.abs(off).max(axis=1, initial=0) > (1 + slack if slack else 0)
        wrong += int(is_wrong.sum())
        for row in np.flatnonzero(is_wrong)[: _MOST_ISSUES - len(shown)]:
            at = int(np.argmax(np.abs(off[row])))
            some = next(i for i, count in enumerate(counts[row]) if count)
            # An estimate of the number of rows in the source.
            total = round(int(counts[row].sum()) / min(1.0, math.fsum(shares)))
            expected = f"{counts[row, at] - off[row, at]:,} of {total:,}"
            value = column.value(splits[some], int(first[row, some]))
            shown.append((splits[at], value, f"{expected} for a share of {shares[at]:.4g}",
                         f"{counts[row, at]:,}"))  # fmt: skip
    for split, value, expected, has in shown:
        more = f" This is so for {wrong:,} values." if wrong > len(shown) else ""
        yield Issue(
            "stratum", f"split {split}, feature {column.name}, value {value}",
            f"The split has another share of the examples with this value than declared.{more}",
            f"{REBUILD}; if rows were moved on purpose, declare their new rule",
            expected, has,
        )  # fmt: skip


def _table(found: Mapping[str, DistinctValues], splits: list[str]) -> tuple[Counts, Counts]:
    """Returns the count and first example of each value in each split."""
    keys = np.unique(np.concatenate([found[split].keys for split in splits]))
    counts, first = (np.zeros((len(keys), len(splits)), np.int64) for _ in range(2))
    for number, split in enumerate(splits):
        rows = np.searchsorted(keys, found[split].keys)
        counts[rows, number] = found[split].counts
        first[rows, number] = found[split].first
    return counts, first


def _closest(counts: Counts, shares: npt.NDArray[np.float64]) -> Counts:
    """Returns the closest counts that the rule can give; shape [values, splits].

    If the shares leave out some rows, the number of rows in the source is unknown; then any number
    is possible that gives as many examples in all splits.
    """
    totals = counts.sum(axis=1)
    reached = np.cumsum(shares)
    if reached[-1] > 1 - 1e-9:
        return _cut(totals, reached)
    best = np.full(counts.shape, np.iinfo(np.int32).max, np.int64)
    least = np.floor((totals - 1) / reached[-1]).astype(np.int64)
    for more in range(math.ceil(2 / reached[-1]) + 2):
        expected = _cut(np.maximum(0, least + more), reached)
        fits = (expected.sum(axis=1) == totals) & (
            np.abs(expected - counts).sum(axis=1) < np.abs(best - counts).sum(axis=1)
        )
        best[fits] = expected[fits]
    return best


def _cut(rows: Counts, reached: npt.NDArray[np.float64]) -> Counts:
    """Returns the counts of each part, as `splitting.strata` cuts rows."""
    ends = np.rint(rows[:, None] * reached).astype(np.int64)
    found: Counts = np.diff(ends, axis=1, prepend=0)
    return found


class SplitDeclarations:
    """A `shard_reading.Check` of the declarations of splits."""

    def __init__(self, recorded: Manifest, tree: Any) -> None:
        """Reads the declarations in the manifest; `tree` is None if the features are unknown."""
        self._recorded = recorded
        self._is_limited = "max_examples_per_split" in recorded.options
        declarations, self.not_checked = split_rules.read_rules(recorded.splits)
        self._columns = [
            (one, self._observer(f"split{number}", one, tree))
            for number, one in enumerate(declarations)
        ]
        self.observers: Sequence[ColumnHashes] = [
            observer for _, observer in self._columns if observer
        ]

    def _observer(self, name: str, declaration: Declaration, tree: Any) -> ColumnHashes | None:
        rule = declaration.rule
        if rule.column is None:
            return None
        leaf = tree.get(declaration.feature) if isinstance(tree, Mapping) else None
        reason = split_rules.why_not(leaf) if tree is not None else "the features are unknown"
        if leaf is None or reason:
            self.not_checked.append(
                f"whether splits {declaration} are as declared by {rule.column}: {reason}"
            )
            return None
        return ColumnHashes(name, leaf, rule.salt if isinstance(rule, Hashed) else "")

    def issues(self, splits: Mapping[str, Sequence[ObservedShard]]) -> Iterator[Issue]:
        """See `shard_reading.Check`."""
        for declaration, observer in self._columns:
            present = {part: split for part, split in declaration.splits.items() if split in splits}
            one = dataclasses.replace(declaration, splits=present)
            if observer is not None:
                column = SplitColumn(observer, {split: splits[split] for split in present.values()})
                yield from self._by_values(one, column)
            # Otherwise it is noted already that the column is unavailable.
            elif isinstance(one.rule, Hashed) and one.rule.column is None:
                yield from self._by_keys(one, one.rule, splits)

    def _by_keys(
        self, declaration: Declaration, rule: Hashed, splits: Mapping[str, Sequence[ObservedShard]]
    ) -> Iterator[Issue]:
        self.not_checked.append(
            f"whether each example of splits {declaration} is in the split of its key's hash: keys "
            "are not stored"
        )
        if self._is_limited:
            self._note_limited(declaration)
            return
        counts = {
            split: sum(shard.examples for shard in splits[split])
            for split in declaration.splits.values()
        }
        yield from check_shares(declaration, rule, counts, "examples")

    def _by_values(self, declaration: Declaration, column: SplitColumn) -> Iterator[Issue]:
        rule, options = declaration.rule, self._recorded.options
        if isinstance(rule, Hashed):
            yield from check_groups(
                declaration, rule, column, self.not_checked, shares=not self._is_limited
            )
            if self._is_limited:
                self._note_limited(declaration)
        elif not isinstance(rule, Stratified):
            yield from check_valued(declaration, rule, column, self.not_checked)
        elif self._is_limited or "ignore_duplicates" in options or not declaration.is_whole:
            self._note_limited(declaration)
        else:
            # Quarantined rows counted when classes were split; missing values are a class of their
            # own, but stored like another one.
            slack = sum(self._recorded.quarantined.values()) + column.observer.leaf.is_optional
            yield from check_stratified(declaration, rule, column, slack)

    def _note_limited(self, declaration: Declaration) -> None:
        self.not_checked.append(
            f"whether splits {declaration} have their declared shares: only some of their examples "
            "were built"
        )
