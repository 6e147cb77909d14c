"""TFDS features for the columns of a source."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.errors import SourceError, explain


def features_of(
    schema: pa.Schema, labels: Mapping[str, Sequence[str]]
) -> tfds.features.FeaturesDict:
    """Returns features that hold all that the columns can hold, but nulls.

    Args:
      schema: The columns, in the types in which they are stored.
      labels: The columns that are class labels, with the names of their classes.

    Raises:
      SourceError: There is no such label column.
    """
    missing = sorted(set(labels) - set(schema.names))
    if missing:
        raise SourceError(
            explain(
                f"The source has no column {', '.join(map(repr, missing))} for labels.",
                f"Its columns: {', '.join(schema.names)}",
                mend="choose among those",
            )
        )
    return tfds.features.FeaturesDict(
        {
            field.name: tfds.features.ClassLabel(names=list(labels[field.name]))
            if field.name in labels
            else feature_of(field.type)
            for field in schema
        }
    )


def feature_of(kind: pa.DataType) -> tfds.features.FeatureConnector:
    """Returns the feature for a stored type."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return tfds.features.Text()
    if pa.types.is_large_binary(kind):
        return tfds.features.Scalar(np.object_)
    if isinstance(kind, pa.FixedShapeTensorType):
        return tfds.features.Tensor(shape=tuple(kind.shape), dtype=_dtype(kind.value_type))
    shape = []
    of = kind
    while pa.types.is_fixed_size_list(of):
        shape.append(of.list_size)
        of = of.value_type
    if shape and not pa.types.is_nested(of):
        return tfds.features.Tensor(shape=tuple(shape), dtype=_dtype(of))
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind):
        return tfds.features.Sequence(feature_of(kind.value_type))
    if pa.types.is_struct(kind):
        return tfds.features.FeaturesDict({field.name: feature_of(field.type) for field in kind})
    return tfds.features.Scalar(_dtype(kind))


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return np.dtype(object)
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return dtype
