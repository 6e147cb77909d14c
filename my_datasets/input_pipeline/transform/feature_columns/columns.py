"""Fitted feature columns, and the pass over the data that fits them."""

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from my_datasets.core.reference import DatasetReference
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.plan.option_rules import OptionError
from my_datasets.input_pipeline.plan.options import checked
from my_datasets.input_pipeline.read.source import ExampleSource, source
from my_datasets.input_pipeline.transform.feature_columns.declaring import (
    Categorical,
    Column,
    Crossed,
    Embedding,
    Numeric,
)
from my_datasets.input_pipeline.transform.feature_columns.learning import ColumnMaker
from my_datasets.metadata.features import Leaf
from my_datasets.storage import addresses

_AT_ONCE = 4096
_SPACE, _NAMES = "feature_space.keras", "feature_columns.json"


@dataclass(frozen=True)
class FeatureColumns:
    """Columns that were fitted to a dataset.

    Attributes:
      space: Encodes features: texts and numbers become categories and floats.
      embeddings: The length of the embedding vector, for each column that has one.
      sizes: The number of categories of those columns.
      target: The feature to predict; None if there is none.
    """

    space: keras.utils.FeatureSpace
    embeddings: Mapping[str, int]
    sizes: Mapping[str, int]
    target: str | None = None
    _layers: dict[str, keras.layers.Layer] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Built now, because it cannot build itself within `Dataset.map`.
        self.space.get_inputs()

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> Any:
        """Encodes the features of a batch, for `pipeline(...).map(columns)`.

        Args:
          batch: A dict of features, with or without the target.

        Returns:
          A dict of tensors of shape [n, width], or (that dict, target).
        """
        features = {
            name: tf.cast(batch[name], one.dtype) if one.dtype != "string" else batch[name]
            for name, one in self.space.features.items()
        }
        encoded = self.space(features)
        if self.target is None or self.target not in batch:
            return encoded
        return encoded, batch[self.target]

    @property
    def inputs(self) -> dict[str, keras.KerasTensor]:
        """Keras inputs for the raw features: use these to apply the columns in the model."""
        found: dict[str, keras.KerasTensor] = self.space.get_inputs()
        return found

    @property
    def encoded(self) -> dict[str, keras.KerasTensor]:
        """The encoded features of `inputs`."""
        found: dict[str, keras.KerasTensor] = self.space.get_encoded_features()
        return found

    def encoded_inputs(self) -> dict[str, keras.KerasTensor]:
        """Returns Keras inputs for what `__call__` returns: for columns applied in the pipeline."""
        return {
            name: keras.Input(one.shape[1:], dtype=one.dtype, name=name)
            for name, one in self.encoded.items()
        }

    def dense(self, encoded: Mapping[str, keras.KerasTensor]) -> keras.KerasTensor:
        """Concatenates all columns into the input of a model; shape [n, width].

        Categories with an embedding go through it. Repeated calls share its weights.

        Args:
          encoded: `encoded`, or `encoded_inputs()`.
        """
        parts = []
        for name in sorted(encoded):
            part = encoded[name]
            if name in self.embeddings:
                if name not in self._layers:
                    self._layers[name] = keras.layers.Embedding(
                        self.sizes[name], self.embeddings[name], name=f"{name}_embedding"
                    )
                part = keras.layers.Flatten()(self._layers[name](part))
            parts.append(part)
        return keras.layers.Concatenate()(parts) if len(parts) > 1 else parts[0]

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the columns, for `load`; save them with a model that is fed by a pipeline."""
        folder = addresses.local_path(directory, "The directory")
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            # The space has no weights of its own to build.
            warnings.filterwarnings("ignore", message=".*has not yet been built")
            self.space.save(str(folder / _SPACE))
        names = {"embeddings": dict(self.embeddings), "sizes": dict(self.sizes),
                 "target": self.target}  # fmt: skip
        (folder / _NAMES).write_text(json.dumps(names, indent=2) + "\n", "utf-8")


def load(directory: str | os.PathLike[str]) -> FeatureColumns:
    """Loads the columns that `FeatureColumns.save` wrote.

    Raises:
      InvalidOptionError: The directory does not contain any.
    """
    folder = addresses.local_path(directory, "The directory")
    for needed in (_SPACE, _NAMES):
        if not (folder / needed).is_file():
            raise InvalidOptionError(
                f"feature_columns.load: {folder} has no {needed}.",
                fix="give the directory that FeatureColumns.save wrote to",
            )
    names = json.loads((folder / _NAMES).read_text("utf-8"))
    return FeatureColumns(keras.models.load_model(str(folder / _SPACE)), **names)


def _declared(option: str, value: object) -> object:
    expected = "a dict: what becomes of each feature, by its name"
    if not isinstance(value, Mapping) or not value:
        raise OptionError(expected, f"give {option}={{'age': feature_columns.numeric()}}")
    for name, one in value.items():
        if callable(one) and not isinstance(one, type):
            raise OptionError(expected, f"call it: {{{name!r}: {one.__name__}(...)}}")
        if not isinstance(name, str) or not isinstance(one, Numeric | Categorical):
            raise OptionError(expected, f"give {{{str(name)!r}: feature_columns.numeric()}}")
    return dict(value)


def _crossings(option: str, value: object) -> object:
    if isinstance(value, Sequence) and all(isinstance(one, Crossed) for one in value):
        return value
    given = "crossed(...)" if isinstance(value, Crossed) else "crossed('a', 'b', size=9)"
    raise OptionError("a list of feature_columns.crossed(...)", f"give {option}=[{given}]")


@checked(called="feature_columns.adapt", also={"columns": _declared, "crosses": _crossings})
def adapt(
    reference: str | DatasetReference,
    columns: Mapping[str, Column],
    *,
    crosses: Sequence[Crossed] = (),
    target: str | None = None,
    split: str = "train",
    data_dir: str | os.PathLike[str] | None = None,
) -> FeatureColumns:
    """Fits columns to a split, in one pass.

    Args:
      reference: A prepared dataset such as `"penguins_study"`.
      columns: The column to make of each feature, by the feature's name.
      crosses: Combinations of categorical columns; a cross is named `a_X_b`.
      target: The feature to predict.
      split: The split or slice to learn from.
      data_dir: The data directory; TFDS's default if None.

    Raises:
      FeatureError: A feature does not exist, or its column does not support its type.
      InvalidOptionError: A cross refers to columns that do not exist or are not categorical; or the
        target is also a column.
    """
    if target in columns:
        raise InvalidOptionError(
            f"The target {target!r} is also a column: the model would see the answer.",
            fix="leave it out of the columns, or of target=",
        )
    names = [*columns, *([target] if target is not None else [])]
    examples = source(reference, split=split, data_dir=data_dir, columns=names)
    leaves: dict[str, Leaf] = examples.tree
    makers = {name: ColumnMaker(name, one, leaves[name]) for name, one in columns.items()}
    _learn(examples, [maker for maker in makers.values() if maker.learns])
    features = {name: maker.feature() for name, maker in makers.items()}
    space = keras.utils.FeatureSpace(
        features, output_mode="dict", crosses=[_cross(one, columns) for one in crosses]
    )
    # Everything is known already; the space's own `adapt` would read the data once for each
    # feature.
    space.build_from_config(space.get_build_config())
    embedded = [
        (name, one.embedding, makers[name].size())
        for name, one in columns.items()
        if isinstance(one, Categorical)
    ] + [(one.name, one.embedding, one.size) for one in crosses]
    sizes = {name: size for name, embedding, size in embedded if embedding is not None}
    dimensions = {
        name: _dimension(embedding, size)
        for name, embedding, size in embedded
        if embedding is not None
    }
    return FeatureColumns(space, dimensions, sizes, target)


def _learn(examples: ExampleSource, makers: Sequence[ColumnMaker]) -> None:
    """Reads the examples once, for all columns that learn from them."""
    if not makers:
        return
    for begin in range(0, len(examples), _AT_ONCE):
        numbers = np.arange(begin, min(begin + _AT_ONCE, len(examples)))
        batch = examples.columns(numbers)
        for maker in makers:
            maker.update(batch[maker.name])
    for maker in makers:
        maker.finalize()


def _cross(column: Crossed, columns: Mapping[str, Column]) -> Any:
    for one in column.of:
        if not isinstance(columns.get(one), Categorical):
            raise InvalidOptionError(
                f"The cross {column.name!r} uses {one!r}, which is not a categorical column.",
                f"Found: {[n for n, c in columns.items() if isinstance(c, Categorical)]}",
                fix="declare that column, or cross others",
            )
    mode = "one_hot" if column.embedding is None else "int"
    return keras.utils.FeatureSpace.cross(column.of, column.size, mode)


def _dimension(embedding: Embedding, size: int) -> int:
    return math.ceil(math.sqrt(math.sqrt(size))) if embedding == "auto" else int(embedding or 0)
