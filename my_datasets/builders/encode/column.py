"""The base class of columns, which passes values to TFDS one at a time; errors of values."""

import errno
import os
import subprocess
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_datasets as tfds
from tensorflow_datasets.core import example_serializer

from my_datasets.building.units import InvalidValue
from my_datasets.dependencies import missing_dependency, missing_program
from my_datasets.errors import MissingDependencyError, MyDatasetsError
from my_datasets.records.tf_example import encoding
from my_datasets.records.tf_example.pieces import Piece

# Errors for a path that is not a readable file: the example names a wrong path.
_WRONG_PATHS = frozenset(
    {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
)
# TensorFlow's errors for operations that its file systems cannot do at the moment.
_OF_TENSORFLOW = frozenset(
    {
        "AbortedError", "CancelledError", "DeadlineExceededError", "PermissionDeniedError",
        "ResourceExhaustedError", "UnauthenticatedError", "UnavailableError",
    }
)  # fmt: skip


def raise_if_not_of_the_example(error: Exception, feature: str) -> None:
    """Raises errors that are not the example's fault, for which none may be quarantined.

    Raises:
      MissingDependencyError: A program or a module is not installed.
      Exception: The error itself, if the machine lacks memory, disk space or permission, if a
        network failed, or if it is already an error of this package.
    """
    needed_for = f"encoding the feature {feature!r}" if feature else "encoding examples"
    link: BaseException | None = error
    while link is not None:
        program = _program(link)
        if program is not None:
            raise missing_program(program, needed_for=needed_for) from error
        if isinstance(link, MissingDependencyError):
            raise link
        if isinstance(link, ModuleNotFoundError) and link.name:
            raise missing_dependency(link.name, needed_for=needed_for) from error
        if isinstance(link, ImportError):
            raise MissingDependencyError(
                f"A module needed for {needed_for} cannot be imported: {link}",
                fix="reinstall it, with the system libraries that it names",
            ) from error
        if _is_of_the_machine(link):
            raise error
        link = link.__cause__
    if isinstance(error, MyDatasetsError) and not isinstance(error, InvalidValue):
        raise error


def _program(error: BaseException) -> str | None:
    """Returns the program that could not be started; None if the error has another cause."""
    if not isinstance(error, FileNotFoundError) or not error.filename:
        return None
    frames = traceback.walk_tb(error.__traceback__)
    if not any(frame.f_code.co_filename == subprocess.__file__ for frame, _ in frames):
        return None
    return os.path.basename(os.fsdecode(error.filename))  # noqa: PTH119 - no path of ours


def _is_of_the_machine(error: BaseException) -> bool:
    if isinstance(error, subprocess.CalledProcessError):
        return error.returncode < 0  # killed by a signal, for example when out of memory
    if isinstance(error, OSError):
        if error.errno is None:
            # Libraries raise it without an errno for files that they do not understand.
            is_of_library = type(error) is OSError or type(error).__module__.startswith("PIL")
            return not (is_of_library or isinstance(error, FileNotFoundError))
        return error.errno not in _WRONG_PATHS
    is_of_tensorflow = type(error).__module__.startswith("tensorflow")
    return isinstance(error, MemoryError) or (
        is_of_tensorflow and type(error).__name__ in _OF_TENSORFLOW
    )


def located(
    feature: tfds.features.FeatureConnector, value: object, error: Exception, path: str = ""
) -> InvalidValue:
    """Describes what is wrong with a value, at the innermost feature that can be identified."""
    if isinstance(feature, tfds.features.FeaturesDict):
        if not isinstance(value, dict) or value.keys() != feature.keys():
            found = _shortly(value)
            if isinstance(value, dict):
                found = f"the keys {sorted(map(str, value))}"
            return InvalidValue(path, f"the keys {sorted(feature.keys())}", found)
        parts: Iterator[tuple[str, tfds.features.FeatureConnector, object]] = (
            (f"{path}/{key}" if path else key, feature[key], value[key]) for key in feature
        )
    elif type(feature) is tfds.features.Sequence and isinstance(value, (list, tuple)):
        parts = ((f"{path}[{i}]", feature.feature, item) for i, item in enumerate(value))
    else:
        return InvalidValue(path, repr(feature), _shortly(value))
    for inner_path, inner, item in parts:
        failure = _failure(inner, item)
        if failure is not None:
            return located(inner, item, failure, inner_path)
    return InvalidValue(path, repr(feature), f"{_shortly(value)}: {error}")


def _failure(feature: tfds.features.FeatureConnector, value: object) -> Exception | None:
    serializer = example_serializer.ExampleSerializer({"value": feature.get_serialized_info()})
    try:
        serializer.get_tf_example({"value": feature.encode_example(value)})
    except Exception as error:
        return error
    return None


def _shortly(value: object) -> str:
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}, shape {value.shape}"
    text = repr(value) if not isinstance(value, str) else value
    return f"{text if len(text) <= 100 else text[:100] + '…'} ({kind})"


# Values of one feature, as a builder yields them: whatever its connector accepts.
Values: TypeAlias = Sequence[Any]


@dataclass(frozen=True)
class EncodedValue:
    """A value that is already encoded."""

    entries: bytes
    invalid: InvalidValue | None = None

    @property
    def nbytes(self) -> int:
        """Its size in memory, for the size limit of batches."""
        return len(self.entries)


# Types whose values are immutable.
_CONSTANT = frozenset({bool, int, float, str, bytes, type(None)})


def is_constant(kind: type) -> bool:
    """Returns whether values of a type are immutable."""
    return kind in _CONSTANT or issubclass(kind, np.generic)


class ColumnEncoder:
    """Encodes a top-level feature with TFDS, one value at a time: the fallback of other columns."""

    # Whether a text may be the path of a file that contains the value.
    may_read_files = True

    def __init__(
        self, name: str, feature: tfds.features.FeatureConnector, *, is_whole: bool = False
    ) -> None:
        """Prepares TFDS's serialiser; `is_whole` if the feature is the whole example."""
        self.name = name
        self.feature = feature
        self._is_whole = is_whole
        info = feature.get_serialized_info()
        self._serializer = example_serializer.ExampleSerializer(info if is_whole else {name: info})

    def own(self, value: object) -> object:
        """Returns a copy of a value, in the form that `encode` takes, unaffected by later changes.

        The base class encodes it immediately, and only once: it may be a generator, an open file,
        or the path of a file that is about to be removed.
        """
        try:
            return EncodedValue(self._entries(value))
        except Exception as error:
            raise_if_not_of_the_example(error, self.name)
            invalid = located(self.feature, value, error, self.name)
            invalid.__cause__ = error
            return EncodedValue(b"", invalid)

    def encode(self, values: Values) -> list[Piece]:
        """Returns the map entries of a list of values, as the builder yielded them."""
        return self.quickly(values) or self._one_by_one(values)

    def encode_arrow(self, array: pa.Array) -> list[Piece]:
        """Returns the map entries of an Arrow column."""
        return self.encode(array.to_pylist())

    def quickly(self, values: Values) -> list[Piece] | None:  # noqa: ARG002
        """Returns what `_one_by_one` does, but faster; None if it does not support these values."""
        return None

    def _one_by_one(self, values: Values) -> list[Piece]:
        entries = []
        for value in values:
            if type(value) is not EncodedValue:
                entries.append(self._entries(value))
            elif value.invalid is not None:
                raise value.invalid
            else:
                entries.append(value.entries)
        return encoding.raw(entries)

    def _entries(self, value: object) -> bytes:
        encoded = self.feature.encode_example(value)
        example = self._serializer.get_tf_example(
            encoded if self._is_whole else {self.name: encoded}
        )
        features = example.features.feature
        return b"".join(
            encoding.entry(key, features[key].SerializeToString())
            for key in sorted(features, key=str.encode)
        )

    def _uniform(self, array: pa.Array) -> tuple[pa.Array, tuple[int, ...]] | None:
        """Returns the values of a column of tensors of one shape, and that shape.

        Returns None if the column's type does not guarantee a single shape.
        """
        if isinstance(array.type, pa.FixedShapeTensorType):
            if array.null_count:
                return None
            tensors = np.ascontiguousarray(array.to_numpy_ndarray())  # in dim_names order
            return pa.array(tensors.reshape(-1)), tensors.shape[1:]
        shape = []
        while pa.types.is_fixed_size_list(array.type):
            if array.null_count:
                return None
            shape.append(array.type.list_size)
            array = array.flatten()
        is_plain = not (array.null_count or pa.types.is_nested(array.type))
        return (array, tuple(shape)) if is_plain else None

    def _flattened(
        self, array: pa.Array
    ) -> tuple[pa.Array, npt.NDArray[np.int64] | None, list[npt.NDArray[np.int64]]]:
        """Flattens the nested lists of a column without nulls.

        Returns:
          The values; the number of values in each row, or None if the column has no lists; the list
          sizes at each level.
        """
        lengths: npt.NDArray[np.int64] | None = None
        levels = []
        while pa.types.is_nested(array.type) and not pa.types.is_struct(array.type):
            sizes = pc.list_value_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
            levels.append(sizes)
            if lengths is None:
                lengths = sizes
            else:
                ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
                starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
                lengths = np.diff(ends[starts]).astype(np.int64)
            array = array.flatten()
            if array.null_count:
                raise InvalidValue(self.name, repr(self.feature), "null inside a list")
        return array, lengths, levels

    def _without_nulls(self, array: pa.Array) -> pa.Array:
        if array.null_count:
            raise InvalidValue(self.name, repr(self.feature), "null")
        return array
