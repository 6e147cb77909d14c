"""Fits declared columns to data, and converts them to features of a `keras.utils.FeatureSpace`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from my_datasets.core.arrays import Array
from my_datasets.errors import FeatureError
from my_datasets.input_pipeline.decode.missing import given_by_tfds
from my_datasets.input_pipeline.transform.feature_columns.declaring import (
    Categorical,
    Column,
    Numeric,
)
from my_datasets.metadata.features import Leaf


class ColumnMaker:
    """Fits one column, and makes a feature of a `FeatureSpace` from it."""

    def __init__(self, name: str, column: Column, leaf: Leaf) -> None:
        """Raises FeatureError if the column does not support its feature."""
        self.name, self._column, self._leaf = name, column, leaf
        if not isinstance(leaf, Leaf):
            raise FeatureError(
                f"The column {name!r} cannot use its feature, which holds other features.",
                fix="move those to the top level of the dataset's features",
            )
        if leaf.form == "image" or leaf.shape or leaf.sequence:
            raise _unfit(name, "a single number or text", leaf)
        is_text = leaf.form == "bytes"
        if leaf.is_optional and not is_text and np.dtype(leaf.dtype).kind in "ub":
            raise FeatureError(
                f"The column {name!r} cannot recognize missing values of its feature.",
                f"Found: an optional {leaf.dtype}, which TFDS gives as "
                f"{'False' if leaf.dtype == 'bool' else '0'} where it is missing",
                fix="make the feature a signed integer, a float or a text",
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
                f"The column {name!r} has a vocabulary of another type than its feature.",
                f"Expected: {'texts' if is_text else 'whole numbers'}",
                f"Found: {column.values[0]!r}",
                fix="give such values, or leave them out to learn them",
            )
        self.is_categorical = isinstance(column, Categorical)
        self._count, self._mean, self._squares = 0, 0.0, 0.0
        self._quantiles = Quantiles()
        self._layer: Any = None
        if isinstance(column, Categorical):
            self._layer = self._categories(column)

    @property
    def learns(self) -> bool:
        """Whether the column has to see the data."""
        column = self._column
        if isinstance(column, Numeric):
            can_miss = self._leaf.is_optional or np.dtype(self._leaf.dtype).kind == "f"
            return column.normalise or (can_miss and column.missing == "mean")
        return column.values is None and column.file is None and column.kind in (
            "bucketised", "vocabulary"
        )  # fmt: skip

    def update(self, values: Array) -> None:
        """Learns from a batch of values."""
        present = values[~self._missing(values)]
        if not len(present):
            return
        if isinstance(self._column, Numeric):
            # Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
            # sample variances", 1979.
            some = present.astype(np.float64)
            count, mean = len(some), float(some.mean())
            total, distance = self._count + count, mean - self._mean
            self._squares += float(((some - mean) ** 2).sum())
            self._squares += distance**2 * self._count * count / total
            self._mean += distance * count / total
            self._count = total
        elif self._column.kind == "bucketised":
            self._quantiles.add(present.astype(np.float32))
        else:
            given = list(present) if self._dtype == "string" else present.astype(np.int64)
            self._layer.update_state(tf.constant(given))

    def finalize(self) -> None:
        """Finishes learning, after all batches were seen."""
        if not isinstance(self._column, Categorical):
            return
        if self._column.kind == "bucketised":
            boundaries = self._quantiles.boundaries(self._column.size or 0)
            self._layer = self._ranges(boundaries)
        else:
            self._layer.finalize_state()

    def size(self) -> int:
        """Returns the number of categories."""
        layer = self._layer
        if isinstance(layer, keras.layers.StringLookup | keras.layers.IntegerLookup):
            return int(layer.vocabulary_size())
        if isinstance(layer, keras.layers.Discretization):
            return int(layer.num_bins)
        return int(getattr(self._column, "size", None) or 0)

    def feature(self) -> Any:
        """Returns the column as a feature of a `FeatureSpace`."""
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
        """The value TFDS returns for missing numbers; minus infinity if none can be missing."""
        return _least(self._leaf.dtype) if self._leaf.is_optional else -math.inf

    def _ranges(self, boundaries: Sequence[object]) -> keras.layers.Layer:
        """Returns the layer of the ranges, with a category for missing values if needed."""
        if not self._leaf.is_optional and np.dtype(self._leaf.dtype).kind != "f":
            # `num_bins` makes the layer look adapted: a FeatureSpace asks for the number of bins,
            # which is None if boundaries are given, and then skips the encoding.
            layer = keras.layers.Discretization(num_bins=len(boundaries) + 1)
        else:
            missing = self._sentinel if self._leaf.is_optional else None
            layer = RangesOrMissing(missing, num_bins=len(boundaries) + 2)
        layer.bin_boundaries = list(boundaries)
        return layer

    def _missing(self, values: Array) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(values), np.bool_)
        if values.dtype.kind == "f":
            found = np.isnan(values)
        if not self._leaf.is_optional:
            return found
        # TFDS returns the smallest value of the type, or an empty text, for missing values.
        if self._dtype == "string":
            return np.array([not value for value in values], np.bool_)
        least = _least(str(values.dtype))
        return found | (values <= least)

    def _categories(self, column: Categorical) -> keras.layers.Layer | None:
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
                f"The vocabulary of {self.name!r} does not exist: {column.file}",
                fix="give a file with one category per line",
            )
        return lookup(vocabulary=column.file or list(column.values or ()))


class Quantiles:
    """Boundaries that divide numbers into ranges of about equal counts, computed in one pass.

    Each distinct number is counted until there are more than `_MOST` of them. Half as many then
    represent all, each standing for the same number of examples: the error of a rank stays below
    0.1% for a billion numbers.
    """

    _MOST = 1 << 21

    def __init__(self) -> None:
        self._values = np.empty(0, np.float32)
        self._counts = np.empty(0, np.int64)

    def add(self, values: npt.NDArray[np.float32]) -> None:
        """Adds numbers, none of them NaN; shape [n]."""
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
            positions = np.unique(np.searchsorted(below, wanted))
            self._values = self._values[positions]
            self._counts = np.diff(below[positions], prepend=0)

    def boundaries(self, parts: int) -> list[float]:
        """Returns the first number of each range except the first.

        Equal numbers always fall into the same range. There are fewer ranges than `parts` if there
        are fewer distinct numbers; next to a number that many examples have, the remaining ranges
        divide the remaining examples evenly.
        """
        below = np.cumsum(self._counts)  # examples at or below each number
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
    """Ranges of numbers, followed by a category for missing values and NaN.

    Run `from my_datasets import feature_columns` before loading a model with this layer.
    """

    def __init__(self, missing: float | None, **options: object) -> None:
        """`missing` is the largest number that means a missing value; None if only NaN does."""
        super().__init__(**options)
        self.missing = missing

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the index of each number's category; same shape as the input."""
        ops = self.backend.numpy
        inputs = self.backend.convert_to_tensor(inputs)
        is_missing = ops.isnan(inputs)
        if self.missing is not None:
            is_missing = ops.logical_or(is_missing, ops.less_equal(inputs, self.missing))
        found = super().call(inputs)
        return ops.where(is_missing, ops.full_like(found, len(self.bin_boundaries) + 1), found)

    def get_config(self) -> dict[str, object]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "missing": self.missing}


@keras.saving.register_keras_serializable(package="my_datasets")
class HashesOrMissing(keras.layers.Hashing):
    """Hashed categories, followed by a category for missing values.

    Run `from my_datasets import feature_columns` before loading a model with this layer.
    """

    def __init__(self, missing: str | int, **options: object) -> None:
        """Keras's `num_bins` includes the category for missing values, which are `missing`."""
        super().__init__(**options)
        self.missing = missing

    def _hash_values_to_bins(self, values: tf.Tensor) -> tf.Tensor:
        is_missing = tf.equal(values, tf.cast(self.missing, values.dtype))
        text = values if values.dtype == tf.string else tf.as_string(values)
        found = tf.strings.to_hash_bucket_fast(text, self.num_bins - 1)
        return tf.where(is_missing, tf.constant(self.num_bins - 1, found.dtype), found)

    def get_config(self) -> dict[str, object]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "missing": self.missing}


@keras.saving.register_keras_serializable(package="my_datasets")
class FilledNormalization(keras.layers.Layer):
    """Fills in missing numbers, subtracts the mean and scales the result.

    Run `from my_datasets import feature_columns` before loading a model with this layer.
    """

    def __init__(
        self, mean: float, scale: float, fill: float, missing: float, **options: object
    ) -> None:
        """Subtracts `mean`, and multiplies by `scale`, the inverse of the standard deviation.

        `fill` replaces NaN and missing numbers; `missing` is the largest number that means one.
        """
        super().__init__(**options)
        self.mean, self.scale, self.fill, self.missing = mean, scale, fill, missing

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the normalised numbers; same shape as the input."""
        is_present = keras.ops.logical_and(inputs > self.missing, keras.ops.logical_not(
            keras.ops.isnan(inputs)))  # fmt: skip
        return (keras.ops.where(is_present, inputs, self.fill) - self.mean) * self.scale

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the input's shape."""
        return input_shape

    def get_config(self) -> dict[str, object]:
        """Returns the arguments of the constructor."""
        names = ("mean", "scale", "fill", "missing")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _least(dtype: str) -> float:
    """Returns the value TFDS returns for missing numbers, as the float32 that columns see."""
    return float(np.float32(given_by_tfds(dtype)))


def _unfit(name: str, expected: str, leaf: Leaf) -> FeatureError:
    sequence = f" in sequences of {leaf.sequence}" if leaf.sequence else ""
    return FeatureError(
        f"The column {name!r} does not support its feature.",
        f"Expected: {expected}",
        f"Found: {leaf.form} {leaf.dtype} of shape {leaf.shape}{sequence}",
        fix="declare another kind of column",
    )
