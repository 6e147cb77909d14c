"""`load`: from a reference to a `tf.data.Dataset`, with errors that fit on a screen."""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.core import registered
from tensorflow_datasets.core.utils import file_utils

from my_datasets.builders.registry import packaged
from my_datasets.core import layout
from my_datasets.core.lock import Lock
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import (
    ConfigNotFoundError,
    DatasetNotFoundError,
    MyDatasetsError,
    NotPreparedError,
    SplitNotFoundError,
    VersionNotFoundError,
    explain,
)

_SHOWN = 5  # how many names of a long list an error shows


def load(
    reference: str | DatasetReference,
    *,
    split: Any = None,
    data_dir: str | os.PathLike[str] | None = None,
    as_supervised: bool = False,
    with_info: bool = False,
    download: bool = True,
    batch_size: int | None = None,
    shuffle_files: bool = False,
    decoders: Any = None,
    read_config: tfds.ReadConfig | None = None,
    builder_kwargs: Mapping[str, Any] | None = None,
    download_and_prepare_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Loads a dataset by reference, and returns what `tfds.load` would.

    Args:
      reference: For example `"digits"`, `"digits:1.*.*"` or a `DatasetReference`.
      split: A split or slice such as `"train[:80%]"`, a list of them, or None for all.
      data_dir: The data directory; TFDS's default (`TFDS_DATA_DIR`, else
        `~/tensorflow_datasets`) if None.
      as_supervised: Yield `(input, label)` tuples in place of dictionaries of features.
      with_info: Return `(dataset, tfds.core.DatasetInfo)`.
      download: Build the dataset if it is not prepared yet.
      batch_size: Examples per batch; -1 for all of the split as tensors; None for no batches.
      shuffle_files: Shuffle the order of the shards.
      decoders: TFDS decoders by feature.
      read_config: TFDS's read options.
      builder_kwargs: Further arguments of the builder's constructor.
      download_and_prepare_kwargs: Arguments of `Builder.download_and_prepare`.

    Returns:
      A `tf.data.Dataset` with the dataset's features; a dict of them by split if `split` is None;
      a list of them if `split` is a list. With `with_info`, that and the `DatasetInfo`.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, SplitNotFoundError: There is
        no such thing.
      NotPreparedError: The data is not there, and `download` is False.
      BuilderError: The builder is at fault.
      LockError: The data are others than the project's lock says.
    """
    lock = Lock.find()
    wanted = _parsed(reference)
    exact = lock.exact(wanted) if lock is not None else wanted
    builder = find_builder(exact, data_dir=data_dir, builder_kwargs=builder_kwargs)
    if download and download_and_prepare_kwargs and _is_read_only(builder):
        # TFDS found data and gave a builder that cannot build, but would delete if asked to.
        (builder,) = builders_from_code(_exact(builder), data_dir=data_dir)
    if download and not _is_read_only(builder):
        builder.download_and_prepare(**(download_and_prepare_kwargs or {}))
    elif not layout.is_prepared(builder.data_path):
        raise _not_prepared(builder)
    if lock is not None:
        directory = builder.data_dir
        lock.check(wanted, layout.as_path(directory), has_shards=not layout.is_remote(directory))
    try:
        dataset = builder.as_dataset(
            split=split,
            as_supervised=as_supervised,
            batch_size=batch_size,
            shuffle_files=shuffle_files,
            decoders=decoders,
            read_config=read_config,
        )
    except ValueError as error:
        if "Unknown split" not in str(error):
            raise
        raise _split_not_found(builder, split) from error
    return (dataset, builder.info) if with_info else dataset


def find_builder(
    reference: str | DatasetReference,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    builder_kwargs: Mapping[str, Any] | None = None,
) -> tfds.core.DatasetBuilder:
    """Returns the builder of a dataset, from prepared data or from code, as TFDS chooses.

    Args:
      reference: The dataset, and optionally its config and version.
      data_dir: The data directory; TFDS's default if None.
      builder_kwargs: Further arguments of the builder's constructor.

    Raises:
      InvalidReferenceError, DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError,
      BuilderError: As `load` does.
    """
    reference = _parsed(reference)
    with _explained(reference, data_dir):
        return tfds.builder(str(reference), data_dir=_expanded(data_dir), **(builder_kwargs or {}))


def builders_from_code(
    reference: str | DatasetReference,
    *,
    data_dir: str | os.PathLike[str] | None = None,
) -> list[tfds.core.DatasetBuilder]:
    """Returns the builders that can generate a dataset, whatever is prepared already.

    Args:
      reference: The dataset; without a config, a builder is returned for each of its configs.
      data_dir: The data directory; TFDS's default if None.

    Raises:
      InvalidReferenceError, DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError,
      BuilderError: As `load` does.
    """
    reference = _parsed(reference)
    with _explained(reference, data_dir):
        try:
            builder_cls = tfds.builder_cls(reference.name)
        except registered.DatasetNotFoundError as error:
            raise _no_code(reference, _roots(data_dir)) from error
        configs = [config.name for config in builder_cls.BUILDER_CONFIGS]
        return [
            builder_cls(
                data_dir=_expanded(data_dir),
                config=config,
                version=str(reference.version) if reference.version else None,
            )
            for config in ([reference.config] if reference.config else configs or [None])
        ]


def _is_read_only(builder: tfds.core.DatasetBuilder) -> bool:
    return not isinstance(builder, tfds.core.GeneratorBasedBuilder)


def _exact(builder: tfds.core.DatasetBuilder) -> str:
    config = f"/{builder.builder_config_name}" if builder.builder_config_name else ""
    return f"{builder.name}{config}:{builder.version}"


def _parsed(reference: str | DatasetReference) -> DatasetReference:
    if isinstance(reference, DatasetReference):
        return reference
    return DatasetReference.parse(reference)


def _expanded(data_dir: str | os.PathLike[str] | None) -> str | None:
    return None if data_dir is None else os.path.expanduser(data_dir)


@contextmanager
def _explained(
    reference: DatasetReference, data_dir: str | os.PathLike[str] | None
) -> Iterator[None]:
    """Turns TFDS's errors about a missing dataset, config or version into short ones."""
    try:
        yield
    except MyDatasetsError:
        raise
    except registered.DatasetNotFoundError as error:
        # TFDS's own message lists all of its public datasets.
        raise _not_found(reference, _roots(data_dir)) from error
    except ValueError as error:
        if reference.config and f"BuilderConfig {reference.config} not found" in str(error):
            raise _config_not_found(reference) from error
        raise
    except AssertionError as error:  # TFDS's own builders say so when a version is unknown
        if reference.version and "cannot be loaded at version" in str(error):
            raise _version_not_found(reference, error) from error
        raise


def _roots(data_dir: str | os.PathLike[str] | None) -> list[str]:
    return [os.fspath(root) for root in file_utils.list_data_dirs(_expanded(data_dir))]


def _prepared(roots: Iterable[str]) -> list[layout.PreparedVersion]:
    return [found for root in roots for found in layout.prepared_versions(layout.as_path(root))]


def _no_code(reference: DatasetReference, roots: list[str]) -> MyDatasetsError:
    """Returns the error for a dataset to build without a builder."""
    if not any(found.name == reference.name for found in _prepared(roots)):
        return _not_found(reference, roots)
    return DatasetNotFoundError(
        explain(
            f"No builder of {reference.name!r} is imported, so it cannot be built.",
            f"There is prepared data of that name, which can be loaded: {', '.join(roots)}",
            mend=f"my-datasets build {reference} --imports PACKAGE_WITH_ITS_BUILDER",
        )
    )


def _not_found(reference: DatasetReference, roots: list[str]) -> MyDatasetsError:
    prepared = _prepared(roots)
    same_name = sorted({str(found.version) for found in prepared if found.name == reference.name})
    if same_name:
        return VersionNotFoundError(
            explain(
                f"No prepared data matches {str(reference)!r}, and no builder of that name is "
                "imported.",
                f"Searched: {', '.join(roots)}",
                f"Prepared versions of {reference.name!r} there: {', '.join(same_name)}",
                mend="ask for one of those, or my-datasets build "
                f"{reference} --imports PACKAGE_WITH_ITS_BUILDER",
            )
        )
    ours = sorted({*packaged.datasets, *(found.name for found in prepared)})
    near = difflib.get_close_matches(reference.name, ours, n=3)
    if not near:
        near = difflib.get_close_matches(reference.name, registered.list_imported_builders(), n=3)
    names = ", ".join(ours[:_SHOWN]) + (f" and {len(ours) - _SHOWN} more" * (len(ours) > _SHOWN))
    return DatasetNotFoundError(
        explain(
            f"No dataset is called {reference.name!r}.",
            f"Did you mean {' or '.join(map(repr, near))}?" if near else "",
            f"Searched: the builders of my_datasets ({', '.join(packaged.datasets)}), all "
            "builders that are imported, and TFDS's own.",
            f"Searched for prepared data: {', '.join(roots)} (known in all: {names})",
            mend="my-datasets list shows what there is; a builder of your own must be imported "
            "first: my-datasets build NAME --imports your_package",
        )
    )


def _config_not_found(reference: DatasetReference) -> ConfigNotFoundError:
    configs = list(tfds.builder_cls(reference.name).builder_configs)
    shown = ", ".join(configs[:_SHOWN]) + ", ..." * (len(configs) > _SHOWN)
    return ConfigNotFoundError(
        explain(
            f"Dataset {reference.name!r} has no config {reference.config!r}.",
            f"Its configs: {shown or 'none'}",
            mend=f"leave the config out, or write '{reference.name}/<config>'",
        )
    )


def _version_not_found(reference: DatasetReference, error: AssertionError) -> VersionNotFoundError:
    return VersionNotFoundError(
        explain(
            f"Dataset {reference.name!r} has no version {reference.version}.",
            f"TFDS says: {error}",
            mend="ask for one of the versions above; my-datasets list shows what is prepared",
        )
    )


def _split_not_found(builder: tfds.core.DatasetBuilder, split: Any) -> SplitNotFoundError:
    return SplitNotFoundError(
        explain(
            f"Dataset {builder.info.full_name!r} has no split {split!r}.",
            f"Its splits, in {builder.data_dir}: {', '.join(builder.info.splits)}",
            mend="ask for one of those, or a slice such as 'train[:80%]'",
        )
    )


def _not_prepared(builder: tfds.core.DatasetBuilder) -> NotPreparedError:
    root = os.fspath(builder.data_dir_root)
    missing = "" if layout.as_path(root).is_dir() else " (that directory does not exist)"
    return NotPreparedError(
        explain(
            f"Dataset {builder.info.full_name!r} is not prepared.",
            f"Searched: {root}{missing}",
            mend=f"my-datasets build {builder.name} --data-dir {root}, or load with download=True",
        )
    )
