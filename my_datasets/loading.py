"""`load`: from a reference to a `tf.data.Dataset`, with concise errors."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tensorflow_datasets as tfds

from my_datasets.builders.find_builder import (
    builders_from_code,
    declared_versions,
    find_builder,
    is_read_only,
    why_blocked,
)
from my_datasets.core.reference import DatasetReference, reference_to
from my_datasets.errors import InvalidOptionError, NotPreparedError
from my_datasets.input_pipeline.frameworks.tfds_builder import (
    OnDemandBuilder,
    as_dataset,
    prepared_builder,
)
from my_datasets.input_pipeline.plan import option_rules as rules
from my_datasets.input_pipeline.plan.options import checked
from my_datasets.metadata import layout
from my_datasets.publishing.attach import CACHE_BYTES
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.puller import fetch_or_stream
from my_datasets.resolving import version_select
from my_datasets.resolving.resolver import Request, resolve, root_of
from my_datasets.storage import addresses


@checked()
def load(
    reference: Annotated[str | DatasetReference, rules.name_to_load],
    *,
    split: Annotated[Any, None] = None,
    data_dir: str | os.PathLike[str] | None = None,
    as_supervised: Annotated[bool, rules.flag()] = False,
    with_info: Annotated[bool, rules.flag()] = False,
    download: Annotated[bool, rules.flag()] = True,
    batch_size: Annotated[int | None, rules.whole(1, none="single examples", also=(-1,))] = None,
    shuffle_files: Annotated[bool, rules.flag()] = False,
    decoders: Any = None,
    read_config: tfds.ReadConfig | None = None,
    builder_kwargs: Mapping[str, Any] | None = None,
    download_and_prepare_kwargs: Mapping[str, Any] | None = None,
    store: str | os.PathLike[str] | None = None,
    keys: Trusts | None = None,
    stream: bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | str = CACHE_BYTES,
) -> Any:
    """Loads a dataset by reference and returns what `tfds.load` would return.

    Args:
      reference: For example `"digits"`, `"digits:1.*.*"` or a `DatasetReference`. A wildcard
        selects the newest matching prepared version, or, if there is none, the newest one that the
        code builds. Without a version, the code's version is used.
      split: A split or slice such as `"train[:80%]"`, a list of them, or None for all.
      data_dir: The data directory; TFDS's default (`TFDS_DATA_DIR`, else `~/tensorflow_datasets`)
        if None. In an object store that TensorFlow cannot read (all but `gs://`), only prepared
        versions are loaded: their shards are fetched and verified when they are read.
      as_supervised: Yield `(input, label)` tuples instead of dictionaries of features.
      with_info: Return `(dataset, tfds.core.DatasetInfo)`.
      download: Build the dataset if it is not prepared yet.
      batch_size: Examples per batch; -1 returns the whole split as tensors; None does not batch.
      shuffle_files: Shuffle the order of the shards.
      decoders: TFDS decoders by feature.
      read_config: TFDS's read options.
      builder_kwargs: Further arguments of the builder's constructor.
      download_and_prepare_kwargs: Arguments of `Builder.download_and_prepare`.
      store: The store with the release: a directory, or an `s3://`, `gs://` or `https://` URL with
        a folder. The release is pulled into the data directory unless it is already there; no
        builder code runs.
      keys: The trusted signing keys; see `my_datasets.pull`.
      stream: Whether to leave the release in the store, unless it is already complete locally, and
        fetch shards as they are read, like `my_datasets.attach`. None streams, with a warning, only
        if the release does not fit on the disk.
      cache_dir: The directory that caches shards of streamed releases, or of a data directory in an
        object store; see `my_datasets.attach`.
      cache_bytes: The maximum size of the cache of streamed releases, in bytes. That of a data
        directory holds as many shards as are read at a time.

    Returns:
      A `tf.data.Dataset` with the dataset's features; a dict of them by split if `split` is None; a
      list of them if `split` is a list. With `with_info`, a tuple of that and the `DatasetInfo`.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      DatasetNotFoundError, ConfigNotFoundError, VersionNotFoundError, SplitNotFoundError: The
        dataset, config, version or split does not exist.
      VersionBlockedError: The version is blocked. Wildcards skip blocked versions.
      VersionNotBuildableError: The version is not prepared, and the code can only load it.
      NotPreparedError: The data is not prepared, and `download` is False.
      BuilderError: The builder is at fault.
      LockError: The data does not match the project's lock.
      ReleaseNotFoundError, YankedError, CorruptReleaseError, SignatureError, StoreError: As in
        `pull`.
    """
    options: dict[str, Any] = {
        "as_supervised": as_supervised, "batch_size": batch_size, "shuffle_files": shuffle_files,
        "decoders": decoders, "read_config": read_config,
    }  # fmt: skip
    if cache_dir is not None:
        addresses.local_path(cache_dir, "cache_dir")  # fail before any request or build
    if store is not None:
        if builder_kwargs or download_and_prepare_kwargs:
            raise InvalidOptionError(
                "A release in a store is not built: builder_kwargs and download_and_prepare_kwargs "
                "have no effect together with store=.",
                fix="leave them out, or leave out store",
            )
        release = fetch_or_stream(
            reference, store, data_dir, stream=stream, cache_dir=cache_dir,
            cache_bytes=cache_bytes, keys=keys, download=download,
        )  # fmt: skip
        return as_dataset(prepared_builder(release), split, with_info=with_info, **options)
    request = Request.of(reference)
    root = root_of(data_dir)
    if addresses.is_remote(root) and addresses.scheme_of(root) not in addresses.BY_TENSORFLOW:
        # TensorFlow has no file system for it: this package fetches the shards, and verifies them.
        if builder_kwargs or download_and_prepare_kwargs:
            raise InvalidOptionError(
                f"load builds nothing in {root}: builder_kwargs and download_and_prepare_kwargs "
                "have no effect.",
                fix=f"leave them out; my-datasets build NAME --data-dir {root} builds there",
            )
        version = resolve(request.reference, data_dir, shards_dir=cache_dir)
        version.check_lock()
        return as_dataset(prepared_builder(version), split, with_info=with_info, **options)
    builder = find_builder(request.exact, data_dir=data_dir, builder_kwargs=builder_kwargs)
    _refuse_blocked(builder, request)
    if download and download_and_prepare_kwargs and is_read_only(builder):
        # TFDS found prepared data and returned a read-only builder, which cannot build but would
        # delete the data if asked to.
        (builder,) = builders_from_code(reference_to(builder), data_dir=data_dir)
    if download and not is_read_only(builder):
        builder.download_and_prepare(**(download_and_prepare_kwargs or {}))
    elif not layout.is_prepared(builder.data_path):
        raise _not_prepared(builder)
    builder = _locked(request, builder, data_dir)
    return as_dataset(builder, split, with_info=with_info, **options)


def _locked(
    request: Request,
    builder: tfds.core.DatasetBuilder,
    data_dir: str | os.PathLike[str] | None,
) -> tfds.core.DatasetBuilder | OnDemandBuilder:
    """Returns a builder or reader for the data that the lock pins.

    TFDS reads shards in an object store directly and verifies nothing. For locked data, cached
    copies with the SHA-256 from the manifest are read instead.
    """
    if not addresses.is_remote(builder.data_dir):
        request.check(Path(builder.data_dir), has_shards=True)
    elif request.is_locked:
        version = resolve(request.reference, data_dir)
        version.check_lock()
        return prepared_builder(version)
    return builder


def _refuse_blocked(builder: tfds.core.DatasetBuilder, request: Request) -> None:
    why = why_blocked(builder)
    if why is not None:
        declared = declared_versions(builder.name)
        usable = declared.usable(builder.builder_config_name) if declared else ()
        reasons = {str(builder.version): why}
        raise version_select.blocked_error(
            str(request.reference), reasons, usable, request.locked_by
        )


def _not_prepared(builder: tfds.core.DatasetBuilder) -> NotPreparedError:
    root = os.fspath(builder.data_dir_root)
    missing = "" if addresses.as_path(root).is_dir() else " (that directory does not exist)"
    prepared = version_select.describe_prepared(builder.name, builder.builder_config_name, root)
    return NotPreparedError(
        f"Dataset {builder.info.full_name!r} is not prepared.",
        f"Searched: {root}{missing}",
        f"Versions prepared there: {prepared}",
        fix=f"my-datasets build {reference_to(builder)} --data-dir {root}, or load with "
        "download=True",
    )
