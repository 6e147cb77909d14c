"""What columns learn from data, and what they become for a `keras.utils.FeatureSpace`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from my_datasets.errors import FeatureError, explain
from my_datasets.input_pipeline.decode.missing import given_by_tfds
from my_datasets.input_pipeline.transform.feature_columns.declaring import (
    Categorical,
    Column,
    Numeric,
)
from my_datasets.metadata.features import Leaf


class ColumnMaker:
    """Makes a feature of a `FeatureSpace`, of a column and what it learns."""

    def __init__(self, name: str, column: Column, leaf: Leaf) -> None:
        """Prepares for a column of a feature.

        Args:
          name: The feature.
          column: What is to become of it.
          leaf: What it is.

        Raises:
          FeatureError: The column cannot be made of it.
        """
        self.name, self._column, self._leaf = name, column, leaf
        if not isinstance(leaf, Leaf):
            raise FeatureError(
                explain(
                    f"The column {name!r} cannot be made of its feature, which holds others.",
                    fix="put what it holds on the top of the dataset's features",
                )
            )
        if leaf.form == "image" or leaf.shape or leaf.sequence:
            raise _unfit(name, "a single number or text", leaf)
        is_text = leaf.form == "bytes"
        if leaf.is_optional and not is_text and np.dtype(leaf.dtype).kind in "ub":
            raise FeatureError(
                explain(
                    f"The column {name!r} cannot tell what is missing in its feature.",
                    f"Found: an optional {leaf.dtype}, which TFDS gives as "
                    f"{'False' if leaf.dtype == 'bool' else '0'} where it is missing",
                    fix="make the feature a signed integer, a float or a text",
                )
            )
        if is_text and (isinstance(column, Numeric) or column.kind in ("bucketised", "identity")):
            raise _unfit(name, "numbers", leaf)
        is_whole = is_text or np.dtype(leaf.dtype).kind in "iub"
        if isinstance(column, Categorical) and column.kind != "bucketised" and not is_whole:
            raise _unfit(name, "texts or whole numbers", leaf)
        self._dtype = "string" if is_text else "int64" if is_whole else "float32"
        if isinstance(column, Numeric) or column.kind == "bucketised":
            self._dtype = "float32"
        if isinstance(column, Categorical) and column.values is not None and (
            column.kind == "vocabulary" and is_text != isinstance(column.values[0], str | bytes)
        ):  # fmt: skip
            raise FeatureError(
                explain(
                    f"The column {name!r} has a vocabulary of other values than its feature.",
                    f"Expected: {'texts' if is_text else 'whole numbers'}",
                    f"Found: {column.values[0]!r}",
                    fix="give such values, or leave them out to learn them",
                )
            )
        self.is_categorical = isinstance(column, Categorical)
        self._count, self._mean, self._squares = 0, 0.0, 0.0
        self._quantiles = Quantiles()
        self._layer: Any = None
        if isinstance(column, Categorical):
            self._layer = self._categories(column)

    @property
    def learns(self) -> bool:
        """Whether it is to see the data."""
        column = self._column
        if isinstance(column, Numeric):
            can_miss = self._leaf.is_optional or np.dtype(self._leaf.dtype).kind == "f"
            return column.normalise or (can_miss and column.missing == "mean")
        return column.values is None and column.file is None and column.kind in (
            "bucketised", "vocabulary"
        )  # fmt: skip

    def see(self, values: npt.NDArray[Any]) -> None:
        """Learns from some values."""
        there = values[~self._missing(values)]
        if not len(there):
            return
        if isinstance(self._column, Numeric):
            # Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
            # sample variances", 1979.
            some = there.astype(np.float64)
            count, mean = len(some), float(some.mean())
            total, distance = self._count + count, mean - self._mean
            self._squares += float(((some - mean) ** 2).sum())
            self._squares += distance**2 * self._count * count / total
            self._mean += distance * count / total
            self._count = total
        elif self._column.kind == "bucketised":
            self._quantiles.add(there.astype(np.float32))
        else:
            given = list(there) if self._dtype == "string" else there.astype(np.int64)
            self._layer.update_state(tf.constant(given))

    def learned(self) -> None:
        """Ends the pass."""
        if not isinstance(self._column, Categorical):
            return
        if self._column.kind == "bucketised":
            boundaries = self._quantiles.boundaries(self._column.size or 0)
            self._layer = self._ranges(boundaries)
        else:
            self._layer.finalize_state()

    def size(self) -> int:
        """Returns how many categories there are."""
        layer = self._layer
        if isinstance(layer, keras.layers.StringLookup | keras.layers.IntegerLookup):
            return int(layer.vocabulary_size())
        if isinstance(layer, keras.layers.Discretization):
            return int(layer.num_bins)
        return int(getattr(self._column, "size", None) or 0)

    def feature(self) -> Any:
        """Returns the feature."""
        column = self._column
        if isinstance(column, Categorical):
            mode = "one_hot" if column.embedding is None else "int"
            return keras.utils.FeatureSpace.feature(self._dtype, self._layer, mode)
        variance = self._squares / self._count if self._count else 0.0
        scale = 1 / math.sqrt(variance) if column.normalise and variance > 0 else 1.0
        mean = self._mean if column.normalise else 0.0
        fill = self._mean if column.missing == "mean" else float(column.missing)
        layer = FilledNormalization(mean, scale, fill, self._sentinel)
        return keras.utils.FeatureSpace.feature("float32", layer, "float")

    @property
    def _sentinel(self) -> float:
        """What TFDS gives for numbers that are missing; no number if none can be."""
        return _least(self._leaf.dtype) if self._leaf.is_optional else -math.inf

    def _ranges(self, boundaries: Sequence[float]) -> Any:
        """Returns the layer of some ranges; with another one for what is missing, if it can be."""
        if not self._leaf.is_optional and np.dtype(self._leaf.dtype).kind != "f":
            # As if it had learned them: a FeatureSpace asks for the number of ranges, which is None
            # where boundaries are given, and then passes over their encoding.
            layer = keras.layers.Discretization(num_bins=len(boundaries) + 1)
        else:
            missing = self._sentinel if self._leaf.is_optional else None
            layer = RangesOrMissing(missing, num_bins=len(boundaries) + 2)
        layer.bin_boundaries = list(boundaries)
        return layer

    def _missing(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(values), np.bool_)
        if values.dtype.kind == "f":
            found = np.isnan(values)
        if not self._leaf.is_optional:
            return found
        # What TFDS gives for them: the least value of the type, an empty text.
        if self._dtype == "string":
            return np.array([not value for value in values], np.bool_)
        least = _least(str(values.dtype))
        return found | (values <= least)

    def _categories(self, column: Categorical) -> Any:
        if column.kind == "bucketised":
            return None if column.values is None else self._ranges(column.values)
        if column.kind == "hashed" and self._leaf.is_optional:
            missing = "" if self._dtype == "string" else int(np.iinfo(self._leaf.dtype).min)
            return HashesOrMissing(missing, num_bins=(column.size or 0) + 1)
        if column.kind == "hashed":
            return keras.layers.Hashing(num_bins=column.size)
        lookup = (
            keras.layers.StringLookup if self._dtype == "string" else keras.layers.IntegerLookup
        )
        if column.kind == "identity":
            return lookup(vocabulary=list(range(column.size or 0)))
        if column.values is None and column.file is None:
            return lookup(max_tokens=None if column.size is None else column.size + 1)
        if column.file is not None and not Path(column.file).is_file():
            raise FeatureError(
                explain(
                    f"The vocabulary of {self.name!r} is not there: {column.file}",
                    fix="give a file with a category in each line",
                )
            )
        return lookup(vocabulary=column.file or list(column.values or ()))


class Quantiles:
    """Boundaries that divide numbers into parts of about the same size, from one pass.

    Numbers are counted one by one while there are at most so many different ones. When there are
    more, half as many stand for all, each for as many examples: what a rank is off by stays below
    a thousandth of all for a thousand million numbers.
    """

    _MOST = 1 << 21

    def __init__(self) -> None:
        """Begins with no numbers."""
        self._values = np.empty(0, np.float32)
        self._counts = np.empty(0, np.int64)

    def add(self, values: npt.NDArray[np.float32]) -> None:
        """Adds some numbers, none of them NaN; shape [n]."""
        new, counts = np.unique(values, return_counts=True)
        both = np.concatenate([self._values, new])
        self._values, places = np.unique(both, return_inverse=True)
        counts = np.concatenate([self._counts, counts])
        self._counts = np.zeros(len(self._values), np.int64)
        np.add.at(self._counts, places, counts)
        if len(self._values) > self._MOST:
            below = np.cumsum(self._counts)
            half = self._MOST // 2
            wanted = (below[-1] * np.arange(1, half + 1) + half - 1) // half
            kept = np.unique(np.searchsorted(below, wanted))
            self._values = self._values[kept]
            self._counts = np.diff(below[kept], prepend=0)

    def boundaries(self, parts: int) -> list[float]:
        """Returns the first number of each part but the first one.

        Equal numbers are never in two parts. So parts are fewer where there are fewer different
        numbers, and those beside a number that many examples have share evenly what is left.

        Args:
          parts: How many there are to be.
        """
        below = np.cumsum(self._counts)  # how many are at most each number
        found: list[float] = []
        begin, done = 0, 0
        for left in range(parts, 1, -1):
            if begin >= len(below) - 1:
                break
            target = done + (below[-1] - done) / left
            at = int(np.searchsorted(below, target))
            at = max(begin, min(at, len(below) - 2))
            if at > begin and target - below[at - 1] <= below[at] - target:
                at -= 1
            found.append(float(self._values[at + 1]))
            begin, done = at + 1, int(below[at])
        return found


@keras.saving.register_keras_serializable(package="my_datasets")
class RangesOrMissing(keras.layers.Discretization):
    """Ranges of numbers, and after them a category for what is missing or not a number.

    A model that holds it is loaded after `from my_datasets import feature_columns`.
    """

    def __init__(self, missing: float | None, **options: Any) -> None:
        """Takes the largest number that means a missing one; None if only NaN does."""
        super().__init__(**options)
        self.missing = missing

    def call(self, inputs: Any) -> Any:
        """Returns the numbers of categories; shape as given."""
        ops = self.backend.numpy
        inputs = self.backend.convert_to_tensor(inputs)
        is_missing = ops.isnan(inputs)
        if self.missing is not None:
            is_missing = ops.logical_or(is_missing, ops.less_equal(inputs, self.missing))
        found = super().call(inputs)
        return ops.where(is_missing, ops.full_like(found, len(self.bin_boundaries) + 1), found)

    def get_config(self) -> dict[str, Any]:
        """Returns what it was made with."""
        config: dict[str, Any] = super().get_config()
        return {**config, "missing": self.missing}


@keras.saving.register_keras_serializable(package="my_datasets")
class HashesOrMissing(keras.layers.Hashing):
    """Hashes of categories, and after them a category for what is missing.

    A model that holds it is loaded after `from my_datasets import feature_columns`.
    """

    def __init__(self, missing: str | int, **options: Any) -> None:
        """Takes what stands for a missing value; `num_bins` counts its category, too."""
        super().__init__(**options)
        self.missing = missing

    def _hash_values_to_bins(self, values: Any) -> Any:
        is_missing = tf.equal(values, tf.cast(self.missing, values.dtype))
        text = values if values.dtype == tf.string else tf.as_string(values)
        found = tf.strings.to_hash_bucket_fast(text, self.num_bins - 1)
        return tf.where(is_missing, tf.constant(self.num_bins - 1, found.dtype), found)

    def get_config(self) -> dict[str, Any]:
        """Returns what it was made with."""
        config: dict[str, Any] = super().get_config()
        return {**config, "missing": self.missing}


@keras.saving.register_keras_serializable(package="my_datasets")
class FilledNormalization(keras.layers.Layer):
    """Fills in numbers that are not there, takes the mean away and scales what is left.

    A model that holds it is loaded after `from my_datasets import feature_columns`.
    """

    def __init__(
        self, mean: float, scale: float, fill: float, missing: float, **options: Any
    ) -> None:
        """Takes the mean, the inverse of the deviation, what is filled in, and for what."""
        super().__init__(**options)
        self.mean, self.scale, self.fill, self.missing = mean, scale, fill, missing

    def call(self, inputs: Any) -> Any:
        """Returns the numbers; shape as given."""
        is_there = keras.ops.logical_and(inputs > self.missing, keras.ops.logical_not(
            keras.ops.isnan(inputs)))  # fmt: skip
        return (keras.ops.where(is_there, inputs, self.fill) - self.mean) * self.scale

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape given."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns what it was made with."""
        config: dict[str, Any] = super().get_config()
        return {
            **config,
            "mean": self.mean,
            "scale": self.scale,
            "fill": self.fill,
            "missing": self.missing,
        }


def _least(dtype: str) -> float:
    """Returns what TFDS gives for numbers that are missing, as the float32 that columns take."""
    return float(np.float32(given_by_tfds(dtype)))


def _unfit(name: str, expected: str, leaf: Leaf) -> FeatureError:
    sequence = f" in sequences of {leaf.sequence}" if leaf.sequence else ""
    return FeatureError(
        explain(
            f"The column {name!r} cannot be made of its feature.",
            f"Expected: {expected}",
            f"Found: {leaf.form} {leaf.dtype} of shape {leaf.shape}{sequence}",
            fix="declare another kind of column",
        )
    )
