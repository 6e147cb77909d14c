"""Checks of a builder's class and of its version's directory, and their errors."""

import inspect
from pathlib import Path

from my_datasets.errors import (
    DuplicateBuilderError,
    IncompleteVersionError,
)
from my_datasets.metadata import layout
from my_datasets.metadata.dataset_info import Declared

_REBUILD = "delete {0}, or move it elsewhere, and build the version again"


def source_file(cls: type) -> Path | None:
    """Returns the file that defines a class; None for one typed into an interpreter."""
    try:
        return Path(inspect.getfile(cls)).resolve()
    except (TypeError, OSError):
        return None


def two_of_a_name(name: str, first: type, second: type) -> DuplicateBuilderError:
    """Returns the error for two builders of the same name."""
    return DuplicateBuilderError(
        f"Two builders are called {name!r}.",
        f"Registered first: {_described(first)}",
        f"Registered then: {_described(second)}",
        fix="rename one of them; the name comes from the module "
        "<name>_dataset_builder.py or from the class",
    )


def check_whole(version_dir: Path, reference: str) -> None:
    """Checks that a directory contains a complete version.

    Args:
      version_dir: The directory.
      reference: The reference that builds it, for the error message.

    Raises:
      IncompleteVersionError: The version is not complete.
    """
    if not layout.is_prepared(version_dir):
        raise IncompleteVersionError(
            f"{version_dir} exists, but is not a complete prepared version.",
            f"Expected in it: {' and '.join(layout.METADATA_FILES)}",
            fix=f"my-datasets build {reference} --overwrite rebuilds it in place",
        )


def _described(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__} ({source_file(cls) or 'typed in'})"


def check_prepared(version_dir: Path, name: str, version: str) -> None:
    """Checks that TFDS can read the metadata in the directory of a builder's version.

    Raises:
      IncompleteVersionError: `dataset_info.json` is damaged, or describes another dataset or
        version.
    """
    try:
        declared = Declared.read(version_dir).name
    except FileNotFoundError:
        return
    except IncompleteVersionError as error:
        if isinstance(error.__cause__, NotADirectoryError):  # which the build itself reports
            return
        raise IncompleteVersionError(
            f"{version_dir}/dataset_info.json cannot be read.",
            f"Found: {error.__cause__}",
            fix=_REBUILD.format(version_dir),
        ) from error
    found_name, _, found_version = declared.partition(":")
    if (found_name.partition("/")[0], found_version) != (name, version):
        raise IncompleteVersionError(
            f"{version_dir}/dataset_info.json describes {declared}, not {name}:{version}.",
            fix=_REBUILD.format(version_dir),
        )
