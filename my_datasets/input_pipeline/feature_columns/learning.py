"""What columns learn from data, and what they become for a `keras.utils.FeatureSpace`."""

import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from my_datasets.core.schema import Leaf
from my_datasets.errors import FeatureError, explain
from my_datasets.input_pipeline.feature_columns.declaring import Categorical, Column, Numeric


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
                    mend="put what it holds on the top of the dataset's features",
                )
            )
        if leaf.form == "image" or leaf.shape or leaf.sequence:
            raise _unfit(name, "a single number or text", leaf)
        is_text = leaf.form == "bytes"
        if is_text and (isinstance(column, Numeric) or column.kind in ("bucketised", "identity")):
            raise _unfit(name, "numbers", leaf)
        is_whole = is_text or np.dtype(leaf.dtype).kind in "iub"
        if isinstance(column, Categorical) and column.kind != "bucketised" and not is_whole:
            raise _unfit(name, "texts or whole numbers", leaf)
        self._dtype = "string" if is_text else "int64" if is_whole else "float32"
        if isinstance(column, Numeric) or column.kind == "bucketised":
            self._dtype = "float32"
        self.is_categorical = isinstance(column, Categorical)
        self._count, self._mean, self._squares = 0, 0.0, 0.0
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
            self._layer.update_state(there.astype(np.float32)[:, None])
        else:
            given = list(there) if self._dtype == "string" else there.astype(np.int64)
            self._layer.update_state(tf.constant(given))

    def learned(self) -> None:
        """Ends the pass."""
        if isinstance(self._column, Categorical):
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
        layer = FilledNormalization(mean, scale, fill, _least(self._leaf.dtype))
        return keras.utils.FeatureSpace.feature("float32", layer, "float")

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
            if column.values is None:
                return keras.layers.Discretization(num_bins=column.size)
            # As if it had learned them: a FeatureSpace asks for the number of ranges, which is None
            # where boundaries are given, and then passes over their encoding.
            layer = keras.layers.Discretization(num_bins=len(column.values) + 1)
            layer.bin_boundaries = list(column.values)
            return layer
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
                    mend="give a file with a category in each line",
                )
            )
        return lookup(vocabulary=column.file or list(column.values or ()))


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
    """Returns what TFDS gives for numbers that are missing, or the float32 above that is equal."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return -1.0  # False, as for those that are not missing
    return float(np.finfo(np.float32).min if kind.kind == "f" else np.float32(np.iinfo(kind).min))


def _unfit(name: str, expected: str, leaf: Leaf) -> FeatureError:
    sequence = f" in sequences of {leaf.sequence}" if leaf.sequence else ""
    return FeatureError(
        explain(
            f"The column {name!r} cannot be made of its feature.",
            f"Expected: {expected}",
            f"Found: {leaf.form} {leaf.dtype} of shape {leaf.shape}{sequence}",
            mend="declare another kind of column",
        )
    )
