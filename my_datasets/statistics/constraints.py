"""Constraints that a builder declares on the values of its features, and their violations."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.arrays import Array
from my_datasets.errors import BuilderError
from my_datasets.metadata.features import Leaf
from my_datasets.records.tf_example.columns import Bytes, Column
from my_datasets.statistics.feature import FeatureStatistics, tensor
from my_datasets.statistics.values import LabelStatistics, image_facts

Rows = npt.NDArray[np.int64]

# Maximum number of characters of a value in messages.
_SHOWN = 80
_LENGTHS = frozenset({"min_length", "max_length"})
_OF_ALL = frozenset({"not_null", "max_drift"})
# The constraints that each kind of feature supports.
_RULES: Mapping[str, frozenset[str]] = {
    "number": _OF_ALL | {"minimum", "maximum", "allowed", "unique"},
    "label": _OF_ALL | {"allowed", "all_labels"},
    "bytes": _OF_ALL | _LENGTHS | {"allowed", "regex", "unique"},
    "image": _OF_ALL | {"minimum", "maximum", "unique"},
}


# The values that each kind of feature accepts.
_EXPECTED: Mapping[str, str] = {
    "number": "Expected: numbers",
    "label": "Expected: the names of its classes, or their numbers; -1 for none",
    "bytes": "Expected: texts, or bytes",
}


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """A condition on all values of a feature.

    Attributes:
      minimum: The smallest allowed number; for images, the smallest height and width in pixels.
      maximum: The largest allowed number; for images, the largest height and width in pixels.
      allowed: All allowed values.
      not_null: No value is missing: NaN, empty, or -1 for a class label.
      unique: No value occurs twice, within a split or across splits.
      regex: A pattern in the syntax of Python's `re` that must match each text as a whole.
      min_length: The minimum number of characters, or of values per example of a sequence.
      max_length: The maximum number of characters, or of values per example of a sequence.
      all_labels: Every class occurs in every split.
      max_drift: The maximum distance of the distribution from that of the previous version; see
        `docs/statistics.md`.

    Raises:
      BuilderError: `regex` is not a valid regular expression.
    """

    minimum: float | None = None
    maximum: float | None = None
    allowed: Sequence[str | bytes | float] | None = None
    not_null: bool = False
    unique: bool = False
    regex: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    all_labels: bool = False
    max_drift: float | None = None

    def __post_init__(self) -> None:
        if self.regex is not None:
            try:
                re.compile(self.regex)
            except re.error as error:
                raise BuilderError(
                    f"{self.regex!r} is not a valid regular expression: {error}.",
                    fix="use the syntax of Python's re",
                ) from None

    def to_json(self) -> dict[str, object]:
        """Returns the constraint for the manifest, without attributes that are not set."""
        rules = {one.name: getattr(self, one.name) for one in fields(self)}
        found = {
            name: value for name, value in rules.items() if value is not None and value is not False
        }
        if self.allowed is not None:
            found["allowed"] = list(self.allowed)
        return found


class ConstraintChecker:
    """Checks the values of one feature against its constraint."""

    def __init__(self, feature: FeatureStatistics, constraint: Constraint) -> None:
        self._feature = feature
        self._leaf = feature.leaf
        self._constraint = constraint

    def violations(self, data: Bytes, columns: Mapping[str, Column]) -> Iterator["Violation"]:
        """Yields the violations in some records: for each rule, the first value and the count."""
        column = columns[self._feature.keys[0]]
        rules = self._constraint
        if rules.not_null:
            missing = columns[self._feature.keys[-1]].counts == 0
            if not self._feature.has_lengths:
                yield from self._violation("not_null", missing, np.arange(len(missing)), "nothing")
        if self._feature.has_lengths and self._leaf.form == "number":
            lengths = columns[self._feature.keys[-1]].counts // self._feature.values_per_step
            yield from self._lengths(lengths, np.arange(len(lengths)))
        rows = np.repeat(np.arange(len(column.counts)), column.counts)
        if column.starts is None or column.stops is None:
            if column.values is not None and self._leaf.form == "number":
                yield from self._numbers(column.values, rows)
            return
        view = data.data
        places = zip(column.starts.tolist(), column.stops.tolist(), strict=True)
        files = [view[a:b] for a, b in places]
        if self._leaf.form == "image":
            yield from self._images(files, rows)
        elif self._leaf.form == "bytes":
            yield from self._texts([bytes(file) for file in files], rows)
        else:
            for row, file in zip(rows.tolist(), files, strict=True):
                values = tensor(self._leaf, file)
                yield from self._numbers(values, np.full(values.size, row))

    def values(self, data: Bytes, columns: Mapping[str, Column]) -> list[bytes]:
        """Returns the bytes of each value, to check uniqueness."""
        column = columns[self._feature.keys[0]]
        if column.starts is None or column.stops is None:
            return [] if column.values is None else [one.tobytes() for one in column.values]
        places = zip(column.starts.tolist(), column.stops.tolist(), strict=True)
        return [bytes(data[a:b]) for a, b in places]

    def _numbers(self, values: Array, rows: Rows) -> Iterator["Violation"]:
        rules = self._constraint
        if rules.minimum is not None:
            yield from self._violation("minimum", values < rules.minimum, rows, values)
        if rules.maximum is not None:
            yield from self._violation("maximum", values > rules.maximum, rows, values)
        if rules.not_null:
            is_label = self._leaf.classes is not None
            missing = values == -1 if is_label else values != values
            yield from self._violation("not_null", missing, rows, values)
        if rules.allowed is not None:
            known = self._leaf.labels or ()
            allowed = [known.index(one) if one in known else one for one in rules.allowed]
            yield from self._violation("allowed", ~np.isin(values, allowed), rows, values)

    def _texts(self, texts: Sequence[bytes], rows: Rows) -> Iterator["Violation"]:
        rules = self._constraint
        if rules.not_null:
            yield from self._violation("not_null", [not text for text in texts], rows, texts)
        if rules.allowed is not None:
            allowed = {
                one if isinstance(one, bytes) else str(one).encode() for one in rules.allowed
            }
            yield from self._violation(
                "allowed", [one not in allowed for one in texts], rows, texts
            )
        if rules.regex is not None or rules.min_length is not None or rules.max_length is not None:
            decoded = [text.decode(errors="replace") for text in texts]
            if rules.regex is not None:
                matches = re.compile(rules.regex).fullmatch
                yield from self._violation(
                    "regex", [not matches(one) for one in decoded], rows, texts
                )
            yield from self._lengths(np.array([len(one) for one in decoded], np.int64), rows)

    def _lengths(self, lengths: Array, rows: Rows) -> Iterator["Violation"]:
        rules = self._constraint
        if rules.min_length is not None:
            yield from self._violation("min_length", lengths < rules.min_length, rows, lengths)
        if rules.max_length is not None:
            yield from self._violation("max_length", lengths > rules.max_length, rows, lengths)

    def _images(self, files: Sequence[memoryview], rows: Rows) -> Iterator["Violation"]:
        rules = self._constraint
        sizes = [image_facts(file)[1:] for file in files]
        least = [min(size, default=math.inf) for size in sizes]
        most = [max(size, default=-math.inf) for size in sizes]
        shown = [f"{size[0]} x {size[1]}" if size else "unknown" for size in sizes]
        if rules.minimum is not None:
            yield from self._violation("minimum", np.array(least) < rules.minimum, rows, shown)
        if rules.maximum is not None:
            yield from self._violation("maximum", np.array(most) > rules.maximum, rows, shown)

    def _violation(
        self, rule: str, is_wrong: Any, rows: Rows, values: Any
    ) -> Iterator["Violation"]:
        wrong = np.flatnonzero(is_wrong)
        if len(wrong):
            first = int(wrong[0])
            found = values if isinstance(values, str) else _shown(values[first])
            expected = getattr(self._constraint, rule)
            yield Violation(
                self._leaf.name, rule, _shown(expected), int(rows[first]), found, len(wrong)
            )


@dataclass(frozen=True)
class Violation:
    """Values that violate a constraint.

    Attributes:
      feature: The name of the feature.
      rule: The violated attribute of `Constraint`.
      expected: The value of that attribute.
      row: The first record with a violation.
      found: The value there.
      count: The number of violating values.
    """

    feature: str
    rule: str
    expected: str
    row: int
    found: str
    count: int


def check_declared(
    constraints: Mapping[str, Constraint], features: Sequence[FeatureStatistics], builder: str
) -> None:
    """Checks that constraints fit the features that they name.

    Raises:
      BuilderError: A feature does not exist, or does not support a constraint.
    """
    known = {feature.leaf.name: feature for feature in features}
    for name, constraint in constraints.items():
        if name not in known:
            raise BuilderError(
                f"CONSTRAINTS of {builder!r} names {name!r}, which is not a feature.",
                f"Features: {', '.join(known)}",
                fix="use one of these names, with slashes for nested features",
            )
        leaf = known[name].leaf
        form = "label" if leaf.classes is not None else leaf.form
        for rule in constraint.to_json():
            if rule not in _RULES[form] and not (
                rule in _LENGTHS and form == "number" and known[name].has_lengths
            ):
                raise BuilderError(
                    f"CONSTRAINTS of {builder!r} sets {rule} of {name!r}.",
                    f"A {form} feature supports: {', '.join(sorted(_RULES[form]))}",
                    fix="remove it",
                )
        if constraint.all_labels and not isinstance(known[name].values, LabelStatistics):
            raise BuilderError(
                f"CONSTRAINTS of {builder!r} sets all_labels of {name!r}, whose classes are not "
                "counted.",
                f"Classes: {leaf.classes or 'unknown number'}",
                fix="declare the number of classes in its ClassLabel, at most 100,000",
            )
        wrong = [one for one in constraint.allowed or () if not _is_possible(one, leaf, form)]
        if wrong:
            raise BuilderError(
                f"CONSTRAINTS of {builder!r} allows {wrong[0]!r} for {name!r}, which is not "
                "one of its possible values.",
                _EXPECTED[form],
                fix="write the value as in the examples",
            )


def _is_possible(value: object, leaf: Leaf, form: str) -> bool:
    """Returns whether a value is possible for a feature."""
    if form == "bytes":
        return isinstance(value, (str, bytes))
    if isinstance(value, str):
        return value in (leaf.labels or ())
    return isinstance(value, (int, float, np.number, np.bool_))


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = str(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
