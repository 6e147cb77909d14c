"""TFDS features for the columns of a source."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.errors import SourceError, explain


def features_of(
    schema: pa.Schema,
    labels: Mapping[str, Sequence[str]],
    optional: Collection[str] = (),
    special: Mapping[str, Callable[[], Any]] | None = None,
) -> tfds.features.FeaturesDict:
    """Returns features that can represent all values of the columns.

    Args:
      schema: The columns, with the types in which they are stored.
      labels: The columns that are class labels, with the names of their classes.
      optional: The columns that may contain nulls. TFDS does not support nulls in labels, lists of
        variable length and structs: there, a null remains an error.
      special: Creates the features of some columns.

    Raises:
      SourceError: There is no such column.
    """
    missing = sorted({*labels, *optional} - set(schema.names))
    if missing:
        raise SourceError(
            explain(
                f"The source has no column {', '.join(map(repr, missing))}.",
                f"Its columns: {', '.join(schema.names)}",
                fix="choose among those",
            )
        )
    made = {name: label_feature(names) for name, names in labels.items()}
    for name, feature in (special or {}).items():
        made.setdefault(name, feature())
    return tfds.features.FeaturesDict(
        {
            field.name: made.get(field.name)
            or feature_of(field.type, optional=field.name in optional)
            for field in schema
        }
    )


def label_feature(names: Sequence[str]) -> tfds.features.ClassLabel:
    """Returns the feature for class labels with these names."""
    return tfds.features.ClassLabel(names=list(names))


def image_feature() -> tfds.features.Image:
    """Returns the feature for images of any size and kind, stored as encoded files."""
    return tfds.features.Image()


def video_feature(encoding_format: str) -> tfds.features.Video:
    """Returns the feature for videos of any size, stored as one encoded image per frame."""
    return tfds.features.Video(shape=(None, None, None, 3), encoding_format=encoding_format)


def audio_feature(sample_rate: int, channels: int, dtype: str) -> tfds.features.Audio:
    """Returns the feature for recordings of any length, stored as samples."""
    shape = (None,) if channels == 1 else (None, channels)
    return tfds.features.Audio(shape=shape, dtype=np.dtype(dtype), sample_rate=sample_rate)


def feature_of(kind: pa.DataType, *, optional: bool = False) -> tfds.features.FeatureConnector:
    """Returns the feature for a stored type.

    Args:
      kind: The type.
      optional: Whether to allow nulls, if TFDS supports them for this type.
    """
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Text does not record in the metadata that it is optional, so nulls could not be read back.
        return tfds.features.Scalar(np.str_, optional=True) if optional else tfds.features.Text()
    if pa.types.is_large_binary(kind):
        return tfds.features.Scalar(np.object_, optional=optional)
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensor(kind.shape, kind.value_type, optional)
    shape = []
    of = kind
    while pa.types.is_fixed_size_list(of):
        shape.append(of.list_size)
        of = of.value_type
    if shape and not pa.types.is_nested(of):
        return _tensor(shape, of, optional)
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind):
        return tfds.features.Sequence(feature_of(kind.value_type))
    if pa.types.is_struct(kind):
        return tfds.features.FeaturesDict({field.name: feature_of(field.type) for field in kind})
    return tfds.features.Scalar(_dtype(kind), optional=optional)


def _tensor(
    shape: Sequence[int], kind: pa.DataType, optional: bool
) -> tfds.features.FeatureConnector:
    return tfds.features.Tensor(shape=tuple(shape), dtype=_dtype(kind), optional=optional)


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return np.dtype(object)
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return dtype
