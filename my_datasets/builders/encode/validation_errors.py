"""Describes values that do not fit their features; tells them apart from other failures."""

import errno
import os
import subprocess
import traceback
from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core import example_serializer

from my_datasets.building.units import InvalidValue
from my_datasets.dependencies import missing_dependency, missing_program
from my_datasets.errors import MissingDependencyError, MyDatasetsError

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
    for link in _chain(error):
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
    if isinstance(error, MyDatasetsError) and not isinstance(error, InvalidValue):
        raise error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


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
            if isinstance(value, dict):
                found = f"the keys {sorted(map(str, value))}"
            else:
                found = _shortly(value)
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
