"""What a builder refuses to do, in words: the errors of `my_datasets.builders.base`."""

import inspect
from collections.abc import Iterable
from pathlib import Path

from my_datasets.core import layout
from my_datasets.errors import (
    BuilderError,
    DuplicateBuilderError,
    IncompleteVersionError,
    OverwriteError,
    SourceError,
    VersionNotFoundError,
    explain,
)


def source_file(cls: type) -> Path | None:
    """Returns the file that defines a class; None for one typed into an interpreter."""
    try:
        return Path(inspect.getfile(cls)).resolve()
    except (TypeError, OSError):
        return None


def two_of_a_name(name: str, first: type, second: type) -> DuplicateBuilderError:
    """Returns the error for two builders of one name."""
    return DuplicateBuilderError(
        explain(
            f"Two builders are called {name!r}.",
            f"Registered first: {_described(first)}",
            f"Then came: {_described(second)}",
            mend="rename one of them; the name comes from the module "
            "<name>_dataset_builder.py or from the class",
        )
    )


def no_generator(cls: type, name: str) -> BuilderError:
    """Returns the error for a builder whose `_generate_examples` is called, and is not there."""
    return BuilderError(
        explain(
            f"The builder of {name!r} has no _generate_examples.",
            f"Its source is {source_file(cls)}.",
            mend="write it, or return sources from _split_generators",
        )
    )


def no_version(cls: type, name: str) -> BuilderError:
    """Returns the error for a builder without a version."""
    return BuilderError(
        explain(
            f"The builder of {name!r} has no version.",
            f"Its source is {source_file(cls)}.",
            mend="give the class VERSION = tfds.core.Version('1.0.0')",
        )
    )


def no_such_version(
    name: str, requested: object, in_code: Iterable[object], data_dir: str, config: str | None
) -> VersionNotFoundError:
    """Returns the error for a version that the code does not have; it names those that are.

    Args:
      name: The dataset.
      requested: The version that was asked for.
      in_code: The versions that the builder offers, the newest first.
      data_dir: Where versions may be prepared.
      config: The builder config that was asked for.
    """
    prepared = layout.prepared_versions_of(layout.as_path(data_dir) / name)
    on_disk = [str(found.version) for found in prepared if found.config == config]
    offered = [str(version) for version in in_code]
    return VersionNotFoundError(
        explain(
            f"Dataset {name!r} has no version {requested}.",
            f"Versions in code: {', '.join(offered)}",
            f"Versions prepared in {data_dir}: {', '.join(on_disk) or 'none'}",
            mend=f"ask for one of those: my-datasets build {name}:{offered[0]}",
        )
    )


def unrecorded(name: str, file: str, checksums: object) -> SourceError:
    """Returns the error for an embedded file without a recorded checksum."""
    return SourceError(
        explain(
            f"The builder of {name!r} reads {file} without a recorded checksum.",
            mend=f"add a line 'origin<TAB>size<TAB>sha256<TAB>{file}' to {checksums}",
        )
    )


def remote_overwrite(data_dir: str) -> OverwriteError:
    """Returns the error for overwriting a version in a remote directory."""
    return OverwriteError(
        explain(
            f"{data_dir} cannot be overwritten in place.",
            "A remote directory cannot be swapped in one step, and deleting it first "
            "could lose it.",
            mend="raise the dataset's VERSION, or build into an empty --data-dir",
        )
    )


def empty_overwrite(version_dir: Path) -> OverwriteError:
    """Returns the error for overwriting a version by one without examples."""
    return OverwriteError(
        explain(
            f"{version_dir} is not overwritten by a version without any example.",
            "max_examples_per_split=0 only downloads.",
            mend="leave out overwriting, or ask for at least one example",
        )
    )


def check_whole(version_dir: Path, name: str) -> None:
    """Sees that a version's directory holds a whole one.

    Raises:
      IncompleteVersionError: It does not.
    """
    if not layout.is_prepared(version_dir):
        raise IncompleteVersionError(
            explain(
                f"{version_dir} is there, but is not a whole prepared version.",
                f"Expected in it: {' and '.join(layout.METADATA_FILES)}",
                mend=f"my-datasets build {name} --overwrite builds it anew in its place",
            )
        )


def beam_is_not_recorded(name: str) -> BuilderError:
    """Returns the error for recording the downloads of a builder that runs on Beam."""
    return BuilderError(
        explain(
            f"The builder of {name!r} runs on Beam: what it downloads is not known without a run.",
            mend=f"my-datasets build {name} --register-checksums",
        )
    )


def _described(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__} ({source_file(cls) or 'typed in'})"
