"""Passes metadata to TFDS after checking it.

TFDS imports the modules that `features.json` names, and formats the templates in
`dataset_info.json`. Only this module may call its readers for these files.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import tensorflow_datasets as tfds
from tensorflow_datasets.core import load as tfds_load
from tensorflow_datasets.core import naming, read_only_builder, registered
from tensorflow_datasets.core.utils import error_utils, file_utils
from tensorflow_datasets.core.utils.version import DatasetVariantBlockedError

from my_datasets.errors import (
    FeatureError,
    IncompleteVersionError,
    MyDatasetsError,
    UnregisteredFeatureError,
    problem_of,
)
from my_datasets.metadata import layout
from my_datasets.metadata.content import check_labels
from my_datasets.metadata.dataset_info import Declared, dataset_info
from my_datasets.metadata.feature_classes import read_features
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.printable import clipped
from my_datasets.storage import addresses

_REBUILD = "delete {0}, or move it elsewhere, and build the version again"


def check_whole(version_dir: Path, reference: str) -> None:
    """Raises `IncompleteVersionError` unless the directory of a version is complete."""
    if not layout.is_prepared(version_dir):
        raise IncompleteVersionError(
            f"{version_dir} exists, but is not a complete prepared version.",
            f"Expected in it: {' and '.join(layout.METADATA_FILES)}",
            fix=f"my-datasets build {reference} --overwrite rebuilds it in place",
        )


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


def check_metadata(version_dir: Path) -> None:
    """Checks that it is safe for TFDS to read the metadata of a prepared version.

    Raises:
      FileNotFoundError: The metadata is missing.
      UnregisteredFeatureError: The metadata names a feature class that is neither TFDS's nor
        registered.
      IncompleteVersionError: The metadata is not what TFDS writes, or names files outside the
        directory.
    """
    metadata = VersionMetadata(version_dir)
    _ = metadata.info, metadata.features
    check_labels(version_dir)


def builder_from_directory(version_dir: str | os.PathLike[str]) -> tfds.core.DatasetBuilder:
    """Returns TFDS's read-only builder for a prepared version.

    Calls `check_metadata`, but missing metadata is an `IncompleteVersionError`.
    """
    try:
        check_metadata(addresses.as_path(version_dir))
    except FileNotFoundError as error:
        raise IncompleteVersionError(
            f"{error.filename} does not exist.",
            fix=f"delete {version_dir}, then build or pull the version again",
        ) from error
    with _explained(version_dir):
        return tfds.builder_from_directory(version_dir)


def features_from_directory(directory: str | os.PathLike[str]) -> tfds.features.FeatureConnector:
    """Returns the `FeatureConnector` that a `features.json` describes, for encoding examples.

    Raises:
      FeatureError: It passes arguments to ffmpeg, which could write any files they name.
    """
    read_features(addresses.as_path(directory))
    with _explained(directory):
        found = tfds.features.FeatureConnector.from_config(os.fspath(directory))
    for video in _videos(found):
        arguments = list(video.to_json_content().ffmpeg_extra_args)
        if arguments:
            raise FeatureError(
                f"{os.fspath(directory)}/features.json gives ffmpeg arguments for a video.",
                f"Found: {clipped(' '.join(arguments))}",
                "ffmpeg reads and writes the files that its arguments name, so only arguments in "
                "Python code are used.",
                fix="pass features=tfds.features.FeaturesDict({...}), on the command line "
                "--features MODULE:NAME, with tfds.features.Video(ffmpeg_extra_args=...)",
            )
    return found


def _videos(feature: tfds.features.FeatureConnector) -> Iterator[tfds.features.Video]:
    if isinstance(feature, tfds.features.Video):
        yield feature
    elif isinstance(feature, tfds.features.FeaturesDict):
        for one in feature.values():
            yield from _videos(one)
    elif isinstance(feature, tfds.features.Sequence):
        yield from _videos(feature.feature)


@error_utils.reraise_with_context(registered.DatasetNotFoundError)  # type: ignore[untyped-decorator]
def builder(
    reference: str, *, data_dir: str | None, builder_kwargs: Mapping[str, object]
) -> tfds.core.DatasetBuilder:
    """Returns what `tfds.builder` returns, from prepared data or from code.

    If the features of prepared data are only defined in the dataset's own code, that code reads
    them.
    """
    name, given = naming.parse_builder_name_kwargs(reference, data_dir=data_dir, **builder_kwargs)
    try:
        code = tfds.builder_cls(str(name))
    except registered.DatasetNotFoundError as error:
        code, missing = None, error
    if tfds_load._try_load_from_files_first(code, **given):
        found = read_only_builder._find_builder_dir(str(name), **given)
        if found is not None:
            try:
                return builder_from_directory(found)
            except UnregisteredFeatureError as error:
                if code is None:
                    raise
                try:
                    return _from_code(code, given)
                except AssertionError:  # the code is of another version
                    raise error from None
    if code is None:
        raise missing
    return _from_code(code, given)


def _from_code(
    code: type[tfds.core.DatasetBuilder], given: Mapping[str, object]
) -> tfds.core.DatasetBuilder:
    """Returns a builder whose features come from code; TFDS reads the prepared metadata."""
    try:
        builder = code(**given)
    except MyDatasetsError:
        raise
    except Exception:
        # TFDS reads the metadata of a prepared version here, and may have failed because of it.
        version = str(given.get("version") or code.VERSION)
        for root in file_utils.list_data_dirs(given.get("data_dir")):
            for one in layout.prepared_versions_of(addresses.as_path(root) / code.name):
                if str(one.version) == version:
                    dataset_info(one.path)
        raise
    if layout.is_prepared(builder.data_path):
        dataset_info(addresses.as_path(builder.data_dir))
    return builder


@contextmanager
def _explained(version_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Explains the errors that TFDS raises for metadata that is safe but unreadable."""
    try:
        yield
    except (MyDatasetsError, DatasetVariantBlockedError):
        raise
    except Exception as error:
        raise IncompleteVersionError(
            f"TFDS cannot read the metadata in {os.fspath(version_dir)}.",
            f"Found: {type(error).__name__}: {problem_of(error)[:300]}",
            fix="build or pull the version again",
        ) from error
