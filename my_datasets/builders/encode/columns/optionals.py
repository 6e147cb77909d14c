"""Features that may have no value, in which case TFDS leaves them out of the record."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.builders.encode.columns.column import ColumnEncoder
from my_datasets.errors import BuilderError, explain
from my_datasets.records.tf_example import encoding
from my_datasets.records.tf_example.pieces import Piece, spread


class Optionals(ColumnEncoder):
    """Wraps another column; None and null stand for no value."""

    may_read_files = False

    def __init__(self, name: str, feature: tfds.features.Tensor, of: ColumnEncoder) -> None:
        super().__init__(name, feature)
        self._of = of

    def own(self, value: Any) -> Any:
        return value if value is None else self._of.own(value)

    def quickly(self, values: list[Any]) -> list[Piece] | None:
        given = [value for value in values if value is not None]
        pieces = self._of.quickly(given) if given else encoding.raw([])
        if pieces is None or len(given) == len(values):
            return pieces
        return [spread(pieces, np.array([value is not None for value in values]))]

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        if not array.null_count:
            return self._of.encode_arrow(array)
        present = array.is_valid().to_numpy(zero_copy_only=False)
        given = array.drop_null()
        return [spread(self._of.encode_arrow(given) if len(given) else encoding.raw([]), present)]


def check_readable(features: tfds.features.FeatureConnector, dataset: str) -> None:
    """Checks that TFDS can read what it writes for examples with missing values.

    TFDS's readers know the features from the code or from `features.json`. Both must say that a
    value may be missing, and what stands for it.

    Args:
      features: The features of a dataset.
      dataset: The dataset's name, for error messages.

    Raises:
      BuilderError: A feature is optional in a way that TFDS can write but not read.
    """
    for path, feature, in_sequence in _tensors("", features, in_sequence=False):
        if not getattr(feature, "_optional", False):
            continue
        try:
            info = feature.get_serialized_info()
            saved = tfds.features.FeatureConnector.from_json(feature.to_json())
            read = saved.get_serialized_info()
        except TypeError:
            raise _unreadable(
                dataset,
                path,
                feature,
                "TFDS has no value to stand for a missing tensor of unknown shape.",
                "leave out optional=True; an empty tensor can stand for no value",
            ) from None
        if not (read.optional or in_sequence):
            raise _unreadable(
                dataset,
                path,
                feature,
                "TFDS does not write into features.json that it is optional, so nothing without "
                "this code could read an example that lacks it.",
                "declare tfds.features.Scalar(np.str_, optional=True): the records are the same",
            )
        if info.np_dtype != feature.np_dtype:
            raise _unreadable(
                dataset,
                path,
                feature,
                "TFDS does not read optional tensors with encoding=.",
                "leave out encoding=, or optional=True",
            )
        if in_sequence and feature.shape:
            raise _unreadable(
                dataset,
                path,
                feature,
                "TFDS does not read optional tensors in sequences.",
                "leave out optional=True: in a sequence no value may be missing",
            )


def _tensors(
    path: str, feature: tfds.features.FeatureConnector, *, in_sequence: bool
) -> Iterator[tuple[str, tfds.features.Tensor, bool]]:
    if isinstance(feature, tfds.features.Tensor):
        yield path, feature, in_sequence
    elif isinstance(feature, tfds.features.FeaturesDict):
        for name, inner in feature.items():
            below = f"{path}/{name}" if path else name
            yield from _tensors(below, inner, in_sequence=in_sequence)
    elif isinstance(feature, tfds.features.Sequence):  # or its subclass Dataset
        yield from _tensors(path, feature.feature, in_sequence=True)


def _unreadable(dataset: str, path: str, feature: Any, why: str, fix: str) -> BuilderError:
    return BuilderError(
        explain(
            f"The feature {path!r} of {dataset!r} cannot be optional.",
            f"It is a tfds.features.{type(feature).__name__}.",
            why,
            fix=fix,
        )
    )
