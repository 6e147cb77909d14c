"""Columns, as they are declared: what becomes of a feature."""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from my_datasets.errors import InvalidOptionError, explain

Embedding = int | Literal["auto"] | None


@dataclass(frozen=True)
class Numeric:
    """A number, as it is or normalised; see `numeric`."""

    normalise: bool
    missing: float | Literal["mean"]


@dataclass(frozen=True)
class Categorical:
    """One of some categories; see `bucketised`, `identity`, `vocabulary`, `hashed`."""

    kind: Literal["bucketised", "identity", "vocabulary", "hashed"]
    size: int | None = None
    values: tuple[Any, ...] | None = None
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
        """What it is called among the columns: `a_X_b`."""
        return "_X_".join(self.of)


Column = Numeric | Categorical


def numeric(*, normalise: bool = False, missing: float | Literal["mean"] = "mean") -> Numeric:
    """Returns a column of numbers.

    Args:
      normalise: Whether the mean of the training split is taken away, and what is left is divided
        by its standard deviation.
      missing: What stands for values that are not there, or not a number.
    """
    return Numeric(normalise, missing)


def bucketised(boundaries: Sequence[float] | int, *, embedding: Embedding = None) -> Categorical:
    """Returns a column of ranges of numbers.

    Args:
      boundaries: The first number of each range but the first one, which begins at minus infinity;
        or how many ranges there are to be, with about as many examples of the training split in
        each. Equal numbers are never in two ranges, so that there may be fewer. Numbers that are
        missing (of an optional feature, or NaN) are one category more, the last one.
      embedding: See `vocabulary`.

    Raises:
      InvalidOptionError: They do not increase.
    """
    if isinstance(boundaries, int | np.integer):
        boundaries = int(boundaries)
        if boundaries < 2:
            raise wrong(f"{boundaries} ranges divide nothing", "give 2 or more")
        return Categorical("bucketised", size=boundaries, embedding=embedding)
    values = tuple(map(float, boundaries))
    if not values or any(a >= b for a, b in itertools.pairwise(values)):
        raise wrong(f"boundaries={list(values)} do not increase", "sort them")
    return Categorical("bucketised", values=values, embedding=embedding)


def identity(size: int, *, embedding: Embedding = None) -> Categorical:
    """Returns a column of whole numbers that are categories: 0, 1, and so on.

    Args:
      size: How many there are. Other numbers, and missing ones, are one category more, the first
        one.
      embedding: See `vocabulary`.

    Raises:
      InvalidOptionError: There are none.
    """
    if size < 1:
        raise wrong(f"{size} categories are none", "give 1 or more")
    return Categorical("identity", size=size, embedding=embedding)


def vocabulary(
    values: Sequence[Any] | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    size: int | None = None,
    embedding: Embedding = None,
) -> Categorical:
    """Returns a column of texts, or whole numbers, that are categories.

    All that are unknown or missing are one category more, the first one.

    Args:
      values: The categories.
      file: A file with one in each line, in place of them; with neither, they are those of the
        training split, the most frequent ones first.
      size: How many there are at most, of those of the split.
      embedding: Give each category a vector of this length, which is learned, in place of a one
        among zeros; `"auto"` for the fourth root of their number, rounded up (Tang, "Introducing
        TensorFlow feature columns", Google Developers Blog, 2017).

    Raises:
      InvalidOptionError: There are both, or values come twice.
    """
    if values is not None and file is not None:
        raise wrong("Both values and a file are given", "give one of them")
    given = None if values is None else tuple(np.asarray(values).tolist())
    if given is not None and (not given or len(set(given)) < len(given)):
        raise wrong(f"values={list(given)!r} are none, or come twice", "give each once")
    return Categorical(
        "vocabulary", size=size, values=given,
        file=None if file is None else os.fspath(file), embedding=embedding,
    )  # fmt: skip


def hashed(size: int, *, embedding: Embedding = None) -> Categorical:
    """Returns a column of texts, or whole numbers, of which several share a category.

    Args:
      size: How many categories there are: the hash (FarmHash, 64 bits) modulo this. Missing values
        of an optional feature are one category more, the last one.
      embedding: See `vocabulary`.

    Raises:
      InvalidOptionError: There are none.
    """
    if size < 1:
        raise wrong(f"{size} categories are none", "give 1 or more")
    return Categorical("hashed", size=size, embedding=embedding)


def crossed(*of: str, size: int, embedding: Embedding = None) -> Crossed:
    """Returns a column of combinations of the categories of other columns, hashed.

    Args:
      of: The names of the other columns, two or more.
      size: How many categories there are.
      embedding: See `vocabulary`.

    Raises:
      InvalidOptionError: There is nothing to combine.
    """
    if len(of) < 2 or size < 1:
        raise wrong(f"{list(of)} in {size} categories is no cross", "name two columns or more")
    return Crossed(of, size, embedding)


def wrong(what: str, mend: str) -> InvalidOptionError:
    """Returns the error of an option that makes no sense."""
    return InvalidOptionError(explain(f"{what}.", mend=mend))
