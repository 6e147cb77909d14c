"""Checks splits that were made by hashes of groups or keys.

`allowed` bounds how far a count may be from its share by chance.
"""

import bisect
import heapq
import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from my_datasets.comparison.version_metadata import ANEW
from my_datasets.core import hash_sets
from my_datasets.core.issue import Issue
from my_datasets.sources import splitting
from my_datasets.verification.splits.column_hashes import Counts, DistinctValues, Keys, SplitColumn
from my_datasets.verification.splits.split_rules import Declaration, Hashed

# The probability of a false alarm.
LEVEL = 1e-9

_SHOWN = 3
_FIX = f"{ANEW}; if rows were moved on purpose, declare their new rule"
# Misplaced groups are reported only if the probability is below this that the texts differ from
# those of the source, as for dates that are stored as numbers.
_SURE = 1e-6


def log_bound(count: int, total: int, share: float) -> float:
    """Returns the logarithm of a bound on the probability of a count at least this far off.

    For independent draws it is `-total * KL(count / total, share)`:
    W. Hoeffding, "Probability inequalities for sums of bounded random variables", Journal of the
    American Statistical Association 58 (1963), theorem 1 (the bound of Chernoff).

    Args:
      count: The number of draws of a part.
      total: The number of all draws.
      share: The part's share, from 0 to 1.
    """
    if not total:
        return 0.0
    found = count / total
    divergence = 0.0
    for seen, wanted in ((found, share), (1 - found, 1 - share)):
        if seen > 0:
            divergence += seen * math.log(seen / wanted) if wanted > 0 else math.inf
    return -total * divergence


def allowed(total: int, share: float, level: float = LEVEL) -> tuple[int, int]:
    """Returns the minimum and maximum count to expect.

    Args:
      total: The number of draws.
      share: The part's share, from 0 to 1.
      level: A count lies outside with a smaller probability than this.
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
    at_once: int = hash_sets.AT_ONCE,
) -> Iterator[Issue]:
    """Yields groups in two splits or in the wrong split, and splits with wrong shares.

    Args:
      declaration: The declaration.
      rule: Its rule.
      column: The groups of each split.
      not_checked: Gets a note if the texts of groups are unknown.
      shares: Whether to check the splits' shares of groups.
      at_once: The approximate number of bytes of notes to process at once.
    """
    splits = list(declaration.splits.values())
    shared = {pair: _SharedGroups() for pair in itertools.combinations(splits, 2)}
    separate = {split: _SeparateGroups() for split in splits}
    groups = dict.fromkeys(splits, 0)
    for found in column.pieces(at_once):
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
    """Groups in two splits."""

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
    for split, some in separate.items():
        if some.wrong:
            yield _misplaced_issue(declaration, column, split, some)


def _misplaced_issue(
    declaration: Declaration, column: SplitColumn, split: str, some: _SeparateGroups
) -> Issue:
    def place(part: str) -> str:
        if not part:
            return "in no split"
        return f"in split {declaration.splits[part]}" if part in declaration.splits else part

    shown = "; ".join(
        f"{column.value(split, number)}: {column.place(split, number)}; it belongs {place(part)}"
        for number, part in some.first
    )
    more = "; ..." if some.wrong > _SHOWN else ""
    value = column.value(split, some.first[0][0])
    return Issue(
        "group-in-another-split", f"split {split}, feature {column.name}, value {value}",
        f"{some.wrong:,} of its groups "
        f"{'is' if some.wrong == 1 else 'are'} in the wrong split.",
        _FIX, "the split given by the group's hash and the declared shares",
        f"{shown}{more}",
    )  # fmt: skip
