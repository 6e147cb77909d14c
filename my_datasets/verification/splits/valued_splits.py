"""Whether each split has only rows of the values that make it up."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from my_datasets.comparison.version_metadata import ANEW
from my_datasets.core import hash_sets
from my_datasets.core.issue import Issue
from my_datasets.verification.splits import column_hashes
from my_datasets.verification.splits.distinct_values import Keys, SplitColumn
from my_datasets.verification.splits.split_rules import Declaration, ValueSplit

_SHOWN = 5


def check(
    declaration: Declaration,
    rule: ValueSplit,
    column: SplitColumn,
    not_checked: list[str],
    at_once: int = hash_sets.AT_ONCE,
) -> Iterator[Issue]:
    """Yields values that a split should not have.

    Args:
      declaration: What is declared.
      rule: Its rule.
      column: The values, by splits.
      not_checked: Gets a note if the texts of values are not known.
      at_once: How many bytes of notes are looked at at a time, about.
    """
    allowed = {part: _keys(column, values) for part, values in rule.groups.items()}
    wrong: list[Issue] = []
    count = right = 0
    for found in column.pieces(at_once):
        for part, split in declaration.splits.items():
            values = found[split]
            is_right = np.isin(values.keys, allowed[part])
            right += int(is_right.sum())
            count += int((~is_right).sum())
            for i in np.flatnonzero(~is_right)[: _SHOWN - len(wrong)]:
                owner = next((p for p, keys in allowed.items() if values.keys[i] in keys), None)
                wrong.append(
                    Issue(
                        "value-in-another-split",
                        f"split {split}, feature {column.name}, value "
                        f"{column.value(split, int(values.first[i]))}",
                        "The split should have no examples with this value.",
                        f"{ANEW}; or name the value for this split in split_by",
                        _shown(rule.groups[part]),
                        f"{values.counts[i]:,} examples, the first: "
                        f"{column.place(split, int(values.first[i]))}; by the rule they belong "
                        + (f"in {owner}" if owner else "in no split"),
                    )
                )  # fmt: skip
    if wrong and not right:
        not_checked.append(
            f"whether each split has the declared values of {column.name}: they may be stored "
            "otherwise than the source had them"
        )
        return
    yield from wrong
    if count > len(wrong):
        yield Issue(
            "value-in-another-split", f"feature {column.name}",
            f"{count - len(wrong):,} more values are in splits that should not have them.", ANEW,
        )  # fmt: skip


def _keys(column: SplitColumn, values: tuple[Any, ...]) -> Keys:
    """Returns the keys of the values that make up a split."""
    texts = pa.array([_text(value) for value in values], pa.large_string())
    return column_hashes.hashes(column.watch.salt, texts.cast(pa.large_binary()))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(values: tuple[Any, ...]) -> str:
    more = ", ..." if len(values) > _SHOWN else ""
    return ", ".join(map(repr, values[:_SHOWN])) + more
