"""Chooses the column that encodes each feature."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from my_datasets.builders.encode.columns.column import ColumnEncoder
from my_datasets.builders.encode.columns.images import ImageEncoder
from my_datasets.builders.encode.columns.labels import LabelEncoder
from my_datasets.builders.encode.columns.lists import Lists
from my_datasets.builders.encode.columns.numbers import NumberEncoder
from my_datasets.builders.encode.columns.optionals import Optionals
from my_datasets.builders.encode.columns.sounds import Sounds
from my_datasets.builders.encode.columns.texts import TextEncoder


def columns_of(features: tfds.features.FeatureConnector) -> dict[str, ColumnEncoder] | None:
    """Returns a column for each top-level feature, in the order of their entries.

    Returns None if the features are not a dict, or if the entries of one feature would not be
    adjacent when sorted; TFDS then encodes whole examples.
    """
    if type(features) is not tfds.features.FeaturesDict:
        return None
    owners = sorted(
        (key, name)
        for name, feature in features.items()
        for key in _entry_names(name, feature.get_serialized_info())
    )
    order = [name for _, name in owners]
    together = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
    if len(together) != len(set(together)) or len(together) != len(features):
        return None
    return {name: _column(name, features[name]) for name in together}


def _entry_names(name: str, info: Any) -> Iterator[bytes]:
    if isinstance(info, dict):
        for key, inner in info.items():
            yield from _entry_names(f"{name}/{key}", inner)
    elif info.sequence_rank > 1:  # TFDS stores these as flat values and row lengths
        yield f"{name}/ragged_flat_values".encode()
        yield f"{name}/ragged_row_lengths_0".encode()
    else:
        yield name.encode()


def _column(name: str, feature: tfds.features.FeatureConnector) -> ColumnEncoder:
    kind = type(feature)
    if kind is tfds.features.ClassLabel:
        return LabelEncoder(name, feature)
    if kind is tfds.features.Image:
        return ImageEncoder(name, feature)
    if kind is tfds.features.Text and feature.encoder is None:
        return _maybe_optional(name, feature, TextEncoder(name, feature))
    if kind in (tfds.features.Tensor, tfds.features.Scalar):
        return _maybe_optional(name, feature, _tensor_column(name, feature))
    if kind is tfds.features.Audio:
        column = _tensor_column(name, feature)
        return Sounds(name, feature) if type(column) is NumberEncoder else column
    if kind is tfds.features.Sequence:
        of = _column(name, feature.feature)
        scalar = getattr(feature.feature.get_serialized_info(), "shape", None) == ()
        if scalar and isinstance(of, (NumberEncoder, TextEncoder)):
            return Lists(name, feature, of)
    return ColumnEncoder(name, feature)


def _maybe_optional(name: str, feature: tfds.features.Tensor, of: ColumnEncoder) -> ColumnEncoder:
    # TFDS's own encoder also handles nulls.
    optional = type(of) is not ColumnEncoder and feature.get_serialized_info().optional
    return Optionals(name, feature, of) if optional else of


def _tensor_column(name: str, feature: tfds.features.Tensor) -> ColumnEncoder:
    info = feature.get_serialized_info()
    if isinstance(info, dict) or info.np_dtype != feature.np_dtype:
        return ColumnEncoder(name, feature)
    dtype = np.dtype(info.np_dtype)
    if dtype.kind in "OSU":
        return TextEncoder(name, feature) if info.shape == () else ColumnEncoder(name, feature)
    if dtype.kind in "biuf" and info.shape.count(None) <= 1:
        return NumberEncoder(name, feature)
    return ColumnEncoder(name, feature)
