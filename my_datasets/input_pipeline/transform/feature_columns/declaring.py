"""Declarations of feature columns."""

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.plan import option_rules as rules
from my_datasets.input_pipeline.plan.options import checked_call

Embedding = int | Literal["auto"] | None


@dataclass(frozen=True)
class Numeric:
    """A number, as it is or normalised; see `numeric`."""

    normalise: bool
    missing: float | Literal["mean"]


@dataclass(frozen=True)
class Categorical:
    """A categorical column; see `bucketised`, `identity`, `vocabulary`, `hashed`."""

    kind: Literal["bucketised", "identity", "vocabulary", "hashed"]
    size: int | None = None
    values: tuple[object, ...] | None = None
    file: str | None = None
    embedding: Embedding = None


@dataclass(frozen=True)
class Crossed:
    """Combinations of categories; see `crossed`."""

    of: tuple[str, ...]
    size: int
    embedding: Embedding = None

    @property
    def name(self) -> str:
        """Its name among the columns: `a_X_b`."""
        return "_X_".join(self.of)


Column = Numeric | Categorical


_SIZE = rules.whole(1)
_EMBEDDING = rules.whole(1, none="a one among zeros", words=["auto"])


def _boundaries(option: str, value: Any) -> object:
    if np.ndim(value) == 0:
        return rules.whole(2)(option, value)
    expected = "increasing numbers, or the number of ranges"
    try:
        found = tuple(map(float, value))
    except (TypeError, ValueError):
        raise rules.OptionError(expected, f"give {option}=[18, 65], or {option}=10") from None
    if not found or not all(map(math.isfinite, found)):
        raise rules.OptionError(expected, f"give {option} such numbers")
    if any(a >= b for a, b in itertools.pairwise(found)):
        raise rules.OptionError(expected, f"give {option}={sorted(set(found))}")
    return found


def _categories(option: str, value: Any) -> object:
    if value is None:
        return None
    expected = "a list of texts, or of whole numbers, each once"
    if isinstance(value, str | bytes) or np.ndim(value) != 1:
        raise rules.OptionError(expected, f"give {option}=[{rules.shown(value)}]")
    found = tuple(np.asarray(value).tolist())
    is_one_kind = len({type(one) for one in value}) == 1 and type(found[0]) in (str, bytes, int)
    if not is_one_kind or len(set(found)) < len(found):
        raise rules.OptionError(expected, "give such values")
    return found


def _features(option: str, value: Any) -> object:  # noqa: ARG001 - as all rules
    wrong = [one for one in value if not isinstance(one, str)]
    if wrong and isinstance(wrong[0], Sequence):
        raise rules.OptionError(
            "the names of columns, one after the other",
            f"write feature_columns.crossed({', '.join(map(repr, wrong[0]))}, ...)",
        )
    if wrong or len(value) < 2:
        raise rules.OptionError("the names of two columns or more", "give two names or more")
    return value


@checked_call(
    "feature_columns.numeric",
    normalise=rules.flag(),
    missing=rules.real(-math.inf, words=("mean",)),
)
def numeric(*, normalise: bool = False, missing: float | Literal["mean"] = "mean") -> Numeric:
    """Returns a column of numbers.

    Args:
      normalise: Whether to subtract the mean of the training split and divide by its standard
        deviation.
      missing: The value that replaces missing values and NaN.
    """
    return Numeric(normalise, missing)


@checked_call("feature_columns.bucketised", boundaries=_boundaries, embedding=_EMBEDDING)
def bucketised(boundaries: Sequence[float] | int, *, embedding: Embedding = None) -> Categorical:
    """Returns a column of ranges of numbers.

    Args:
      boundaries: The first number of each range except the first, which begins at minus infinity;
        or the number of ranges, each with about as many examples of the training split. Equal
        numbers always fall into the same range, so there may be fewer ranges. Missing numbers (of
        an optional feature, or NaN) are an additional category, the last one.
      embedding: See `vocabulary`.

    Raises:
      InvalidOptionError: The boundaries do not increase.
    """
    if isinstance(boundaries, int):
        return Categorical("bucketised", size=boundaries, embedding=embedding)
    return Categorical("bucketised", values=tuple(boundaries), embedding=embedding)


@checked_call("feature_columns.identity", size=_SIZE, embedding=_EMBEDDING)
def identity(size: int, *, embedding: Embedding = None) -> Categorical:
    """Returns a column of integers that are categories already: 0, 1, and so on.

    Args:
      size: The number of categories. Other integers and missing ones are an additional category,
        the first one.
      embedding: See `vocabulary`.

    Raises:
      InvalidOptionError: The size is less than 1.
    """
    return Categorical("identity", size=size, embedding=embedding)


@checked_call(
    "feature_columns.vocabulary", values=_categories, file=rules.path,
    size=rules.whole(1, none="all that there are"), embedding=_EMBEDDING,
)  # fmt: skip
def vocabulary(
    values: Sequence[object] | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    size: int | None = None,
    embedding: Embedding = None,
) -> Categorical:
    """Returns a column of texts, or integers, that are categories.

    Unknown and missing values are an additional category, the first one.

    Args:
      values: The categories.
      file: A file with one category on each line, instead of `values`. Without either, the
        categories are learned from the training split, the most frequent first.
      size: The maximum number of categories to learn.
      embedding: Give each category a learned vector of this length instead of a one-hot encoding;
        `"auto"` for the fourth root of the number of categories, rounded up (Tang, "Introducing
        TensorFlow feature columns", Google Developers Blog, 2017).

    Raises:
      InvalidOptionError: Both `values` and `file` are given, or a value occurs twice.
    """
    if values is not None and file is not None:
        raise InvalidOptionError("Both values and a file are given.", fix="give one of them")
    return Categorical(
        "vocabulary", size=size, values=None if values is None else tuple(values),
        file=None if file is None else os.fspath(file), embedding=embedding,
    )  # fmt: skip


@checked_call("feature_columns.hashed", size=_SIZE, embedding=_EMBEDDING)
def hashed(size: int, *, embedding: Embedding = None) -> Categorical:
    """Returns a column of texts, or integers, that are hashed to categories.

    Args:
      size: The number of categories: a category is the hash (FarmHash, 64 bits) modulo this.
        Missing values of an optional feature are an additional category, the last one.
      embedding: See `vocabulary`.

    Raises:
      InvalidOptionError: The size is less than 1.
    """
    return Categorical("hashed", size=size, embedding=embedding)


@checked_call("feature_columns.crossed", of=_features, size=_SIZE, embedding=_EMBEDDING)
def crossed(*of: str, size: int, embedding: Embedding = None) -> Crossed:
    """Returns a column of hashed combinations of the categories of other columns.

    Args:
      of: The names of the other columns, two or more.
      size: The number of categories.
      embedding: See `vocabulary`.

    Raises:
      InvalidOptionError: Fewer than two columns are named.
    """
    return Crossed(of, size, embedding)
