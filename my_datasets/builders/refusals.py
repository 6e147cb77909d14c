"""The errors that `my_datasets.builders.base` raises."""

import inspect
from pathlib import Path

from my_datasets.errors import (
    BuilderError,
    DataDirError,
    DuplicateBuilderError,
    IncompleteVersionError,
    OverwriteError,
    SourceError,
    explain,
)
from my_datasets.metadata import layout
from my_datasets.metadata.dataset_info import Declared

_BUILD_ANEW = "delete {0}, or move it elsewhere, and build the version anew"


def source_file(cls: type) -> Path | None:
    """Returns the file that defines a class; None for one typed into an interpreter."""
    try:
        return Path(inspect.getfile(cls)).resolve()
    except (TypeError, OSError):
        return None


def two_of_a_name(name: str, first: type, second: type) -> DuplicateBuilderError:
    """Returns the error for two builders of the same name."""
    return DuplicateBuilderError(
        explain(
            f"Two builders are called {name!r}.",
            f"Registered first: {_described(first)}",
            f"Then came: {_described(second)}",
            fix="rename one of them; the name comes from the module "
            "<name>_dataset_builder.py or from the class",
        )
    )


def no_generator(cls: type, name: str) -> BuilderError:
    """Returns the error for a builder that uses `_generate_examples` but does not define it."""
    return BuilderError(
        explain(
            f"The builder of {name!r} has no _generate_examples.",
            f"Its source is {source_file(cls)}.",
            fix="write it, or return sources from _split_generators",
        )
    )


def no_version(cls: type, name: str) -> BuilderError:
    """Returns the error for a builder without a version."""
    return BuilderError(
        explain(
            f"The builder of {name!r} has no version.",
            f"Its source is {source_file(cls)}.",
            fix="give the class VERSION = tfds.core.Version('1.0.0')",
        )
    )


def unrecorded(name: str, file: str, checksums: object) -> SourceError:
    """Returns the error for an embedded file without a recorded checksum."""
    return SourceError(
        explain(
            f"The builder of {name!r} reads {file} without a recorded checksum.",
            fix=f"add a line 'origin<TAB>size<TAB>sha256<TAB>{file}' to {checksums}",
        )
    )


def remote_overwrite(data_dir: str) -> OverwriteError:
    """Returns the error for overwriting a version in a remote directory."""
    return OverwriteError(
        explain(
            f"{data_dir} cannot be overwritten in place.",
            "A remote directory cannot be swapped in one step, and deleting it first "
            "could lose it.",
            fix="raise the dataset's VERSION, or build into an empty --data-dir",
        )
    )


def not_read_by_tensorflow(data_dir: str) -> DataDirError:
    """Returns the error for a data directory that this package can access but TensorFlow cannot."""
    return DataDirError(
        explain(
            f"{data_dir} cannot be the data directory of a builder: TensorFlow does not read it.",
            fix=f"build there by my-datasets build --data-dir {data_dir}, or by a builder that is "
            f"elsewhere, with BuildOptions(destination={data_dir!r}); read it by "
            f"my_datasets.pipeline(..., data_dir={data_dir!r})",
        )
    )


def empty_overwrite(version_dir: Path) -> OverwriteError:
    """Returns the error for overwriting a version with one that has no examples."""
    return OverwriteError(
        explain(
            f"{version_dir} is not overwritten by a version without any example.",
            "max_examples_per_split=0 only downloads.",
            fix="leave out overwriting, or ask for at least one example",
        )
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
            explain(
                f"{version_dir} is there, but is not a whole prepared version.",
                f"Expected in it: {' and '.join(layout.METADATA_FILES)}",
                fix=f"my-datasets build {reference} --overwrite builds it anew in its place",
            )
        )


def beam_is_not_recorded(name: str) -> BuilderError:
    """Returns the error for recording the downloads of a builder that runs on Beam."""
    return BuilderError(
        explain(
            f"The builder of {name!r} runs on Beam: what it downloads is not known without a run.",
            fix=f"my-datasets build {name} --register-checksums",
        )
    )


def _described(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__} ({source_file(cls) or 'typed in'})"


def check_prepared(version_dir: Path, name: str, version: str) -> None:
    """Checks that TFDS can read the metadata in the directory of a builder's version.

    Args:
      version_dir: The directory; it may not exist.
      name: The dataset's name.
      version: The version.

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
            explain(
                f"{version_dir}/dataset_info.json cannot be read.",
                f"Found: {error.__cause__}",
                fix=_BUILD_ANEW.format(version_dir),
            )
        ) from error
    found_name, _, found_version = declared.partition(":")
    if (found_name.partition("/")[0], found_version) != (name, version):
        raise IncompleteVersionError(
            explain(
                f"{version_dir}/dataset_info.json is of {declared}, not of {name}:{version}.",
                fix=_BUILD_ANEW.format(version_dir),
            )
        )
