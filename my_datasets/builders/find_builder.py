"""Resolves a reference to a builder of prepared data or of code, with short error messages."""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

import tensorflow_datasets as tfds
from tensorflow_datasets.core import registered
from tensorflow_datasets.core.dataset_info import DatasetInfoFileError
from tensorflow_datasets.core.utils import file_utils
from tensorflow_datasets.core.utils.version import DatasetVariantBlockedError

from my_datasets.builders import from_directory
from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionPattern
from my_datasets.errors import (
    ConfigNotFoundError,
    DataDirError,
    DatasetNotFoundError,
    MyDatasetsError,
    VersionNotFoundError,
)
from my_datasets.metadata import layout
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.resolving import version_select
from my_datasets.resolving.registry import packaged
from my_datasets.resolving.version_select import DeclaredVersions
from my_datasets.storage import addresses

_SHOWN = 5  # how many names of a long list an error shows


def find_builder(
    reference: str | DatasetReference,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    builder_kwargs: Mapping[str, object] | None = None,
) -> tfds.core.DatasetBuilder:
    """Returns a dataset's builder, from prepared data or from code, as `tfds.builder` does.

    Unlike TFDS, a wildcard skips blocked versions. Raises the errors of `load`.
    """
    reference = DatasetReference.of(reference)
    with _explained(reference, data_dir):
        # With constructor arguments, TFDS always creates the builder from code.
        exact = reference if builder_kwargs else _exact(reference, data_dir)
        return from_directory.builder(
            str(exact), data_dir=_expanded(data_dir), builder_kwargs=builder_kwargs or {}
        )


def builders_from_code(
    reference: str | DatasetReference,
    *,
    data_dir: str | os.PathLike[str] | None = None,
) -> list[tfds.core.DatasetBuilder]:
    """Returns the builders that can generate a dataset, whether or not it is already prepared.

    Without a config in the reference, there is one for each of the dataset's configs.
    """
    reference = DatasetReference.of(reference)
    with _explained(reference, data_dir):
        try:
            builder_cls = tfds.builder_cls(reference.name)
        except registered.DatasetNotFoundError as error:
            raise _no_code(reference, roots(data_dir)) from error
        configs = [config.name for config in builder_cls.BUILDER_CONFIGS]
        return [
            builder_cls(
                data_dir=_expanded(data_dir),
                config=config,
                version=str(reference.version) if reference.version else None,
            )
            for config in ([reference.config] if reference.config else configs or [None])
        ]


def is_read_only(builder: tfds.core.DatasetBuilder) -> bool:
    """Returns whether a builder only reads prepared data and cannot build."""
    return not isinstance(builder, tfds.core.GeneratorBasedBuilder)


def declared_versions(name: str) -> DeclaredVersions | None:
    """Returns the versions that a dataset's code offers; None if there is no code for it."""
    cls = _code(name)
    return DeclaredVersions.of_class(cls) if cls is not None else None


def why_blocked(builder: tfds.core.DatasetBuilder) -> str | None:
    """Returns why a builder's version is blocked; None if it is not.

    A version can be blocked by the builder, by the prepared data's own metadata, or by the code.
    """
    reason = version_select.blocked_reason(builder)
    if reason is not None or not is_read_only(builder):
        return reason
    declared = declared_versions(builder.name) or DeclaredVersions()
    by_code = declared.blocked.reason(str(builder.version), builder.builder_config_name)
    return by_code or VersionMetadata(addresses.as_path(builder.data_dir)).blocked_reason


def roots(data_dir: str | os.PathLike[str] | None) -> list[str]:
    """Returns the directories that are searched for prepared data."""
    return [os.fspath(root) for root in file_utils.list_data_dirs(_expanded(data_dir))]


def _code(name: str) -> type[tfds.core.DatasetBuilder] | None:
    with suppress(registered.DatasetNotFoundError):
        found: type[tfds.core.DatasetBuilder] = tfds.builder_cls(name)
        return found
    return None


def _exact(
    reference: DatasetReference, data_dir: str | os.PathLike[str] | None
) -> DatasetReference:
    """Returns an exact reference to the newest prepared version that a wildcard matches.

    If the dataset has no code, a reference without a version counts as a wildcard. All other
    references are returned unchanged, and so are those that no prepared version matches: TFDS then
    resolves them from the code.
    """
    if reference.version is not None and reference.version.is_exact:
        return reference
    cls = _code(reference.name)
    if reference.version is None and cls is not None:
        return reference  # TFDS uses the version in the code
    declared = DeclaredVersions.of_class(cls) if cls is not None else DeclaredVersions()
    default = cls.default_builder_config if cls is not None else None
    prepared = []
    for root in roots(data_dir):
        folder = addresses.as_path(root) / reference.name
        config = reference.config or (default.name if default else layout.default_config(folder))
        prepared += [one for one in layout.prepared_versions_of(folder) if one.config == config]
    choice = version_select.select_prepared(reference.version, prepared, declared.blocked)
    config = reference.config or (default.name if default else None)
    found = choice.version.version if choice.version else None
    # If all matching versions are blocked, TFDS would use one of them.
    if found is None and choice.blocked and reference.version is not None:
        found = declared.newest(reference.version, config)
        if found is None:
            raise version_select.blocked_error(
                str(reference), choice.reasons(), declared.usable(config)
            )
        version_select.warn_of_skipped(
            reference.name, config, found, declared.reasons(reference.version, config)
        )
    choice.warn_of_skipped()
    return reference if found is None else replace(reference, version=VersionPattern.of(found))


def _expanded(data_dir: str | os.PathLike[str] | None) -> str | None:
    if data_dir is None:
        return None
    schemes = (*addresses.BY_TENSORFLOW, "s3")  # our builders explain what to do for s3
    return os.path.expanduser(addresses.path_or_address(data_dir, "The data directory", schemes))


@contextmanager
def _explained(
    reference: DatasetReference, data_dir: str | os.PathLike[str] | None
) -> Iterator[None]:
    """Replaces TFDS's errors about a missing dataset, config or version with short ones."""
    try:
        yield
    except MyDatasetsError:
        raise
    except (PermissionError, DatasetInfoFileError, registered.DatasetNotFoundError) as error:
        if denied := _denied(reference, data_dir):
            raise DataDirError(
                f"The prepared data of {reference} cannot be read.",
                *denied,
                fix="ask its owner for access, or pass another --data-dir",
            ) from error
        if not isinstance(error, registered.DatasetNotFoundError):
            raise
        # TFDS's own message lists all of its public datasets.
        raise _not_found(reference, roots(data_dir)) from error
    except DatasetVariantBlockedError as error:  # blocked by its own metadata
        raise version_select.blocked_error(
            str(reference), {str(reference.version): str(error)}, ()
        ) from error
    except ValueError as error:
        if reference.config and f"BuilderConfig {reference.config} not found" in str(error):
            configs = list(tfds.builder_cls(reference.name).builder_configs)
            shown = ", ".join(configs[:_SHOWN]) + ", ..." * (len(configs) > _SHOWN)
            raise ConfigNotFoundError(
                f"Dataset {reference.name!r} has no config {reference.config!r}.",
                f"Its configs: {shown or 'none'}",
                fix=f"leave the config out, or write '{reference.name}/<config>'",
            ) from error
        raise
    except AssertionError as error:  # raised by TFDS's own builders for an unknown version
        if reference.version and "cannot be loaded at version" in str(error):
            raise VersionNotFoundError(
                f"Dataset {reference.name!r} has no version {reference.version}.",
                f"TFDS says: {error}",
                fix="request one of the versions above; my-datasets list shows the prepared ones",
            ) from error
        raise


def _denied(reference: DatasetReference, data_dir: str | os.PathLike[str] | None) -> list[str]:
    """Returns which paths of the referenced version cannot be read, and why."""
    found = []
    for root in roots(data_dir):
        folder = addresses.as_path(root) / reference.name
        config = reference.config or layout.default_config(folder)
        paths = [folder, *([folder / config] if config else [])]
        if reference.version:
            paths += [path / str(reference.version) for path in paths]
        found += [reason for path in paths if (reason := layout.why_unreadable(path))]
    return found


def _prepared(roots: Iterable[str]) -> list[layout.PreparedVersion]:
    return [found for root in roots for found in layout.prepared_versions(addresses.as_path(root))]


def _no_code(reference: DatasetReference, roots: list[str]) -> MyDatasetsError:
    if not any(found.name == reference.name for found in _prepared(roots)):
        return _not_found(reference, roots)
    return DatasetNotFoundError(
        f"No builder of {reference.name!r} is imported, so it cannot be built.",
        f"Prepared data of that name exists and can be loaded: {', '.join(roots)}",
        fix=f"my-datasets build {reference} --imports PACKAGE_WITH_ITS_BUILDER",
    )


def _not_found(reference: DatasetReference, roots: list[str]) -> MyDatasetsError:
    prepared = _prepared(roots)
    same_name = sorted({str(found.version) for found in prepared if found.name == reference.name})
    if same_name:
        return VersionNotFoundError(
            f"No prepared data matches {str(reference)!r}, and no builder of that name is "
            "imported.",
            f"Searched: {', '.join(roots)}",
            f"Prepared versions of {reference.name!r} there: {', '.join(same_name)}",
            fix="request one of those, or run my-datasets build "
            f"{reference} --imports PACKAGE_WITH_ITS_BUILDER",
        )
    ours = sorted({*packaged.datasets, *(found.name for found in prepared)})
    near = difflib.get_close_matches(reference.name, ours, n=3)
    if not near:
        near = difflib.get_close_matches(reference.name, registered.list_imported_builders(), n=3)
    names = ", ".join(ours[:_SHOWN]) + (f" and {len(ours) - _SHOWN} more" * (len(ours) > _SHOWN))
    return DatasetNotFoundError(
        f"No dataset is called {reference.name!r}.",
        f"Did you mean {' or '.join(map(repr, near))}?" if near else "",
        f"Searched: the builders of my_datasets ({', '.join(packaged.datasets)}), all "
        "imported builders, and TFDS's own.",
        f"Searched for prepared data: {', '.join(roots)} (all known names: {names})",
        fix="run my-datasets list to see all datasets; import a builder of your own first: "
        "my-datasets build NAME --imports your_package",
    )
