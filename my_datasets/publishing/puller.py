"""`pull`: downloads a release as a prepared version.

`fetch_or_stream` finds the prepared copy of a release, pulls it, or attaches it to its store.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from my_datasets.building.staging import leads_outside
from my_datasets.core.logs import get_logger
from my_datasets.core.reference import DatasetReference
from my_datasets.core.sizes import human_size
from my_datasets.errors import (
    DiskFullError,
    NotPreparedError,
    OverwriteError,
    StoreUnavailableError,
    VersionBlockedError,
)
from my_datasets.metadata.layout import DEFAULT_CONFIG
from my_datasets.publishing.attach import CACHE_BYTES, Attached, attach
from my_datasets.publishing.install import Pulled, ReleaseInstall
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.model.trust import keep_signatures, keys_for, require_signed
from my_datasets.publishing.resolve_release import ResolvedRelease, resolve_release
from my_datasets.publishing.transfer import TransferProgress
from my_datasets.resolving.resolver import (
    Request,
    ResolvedVersion,
    resolve,
    resolve_request,
    root_of,
)
from my_datasets.storage import addresses
from my_datasets.storage.backends import open_store
from my_datasets.storage.disk_space import explained
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.retry import RetryPolicy
from my_datasets.storage.store import Store

_AT_ONCE = 8

_LOGGER = get_logger(__name__)
# With a local copy, do not wait long for an unreachable store.
_LITTLE_PATIENCE = RetryPolicy(tries=2)


def pull(
    reference: str | DatasetReference,
    store: str | os.PathLike[str] | Store,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    splits: Sequence[str] | None = None,
    overwrite: bool = False,
    use_lock: bool = True,
    keys: Trusts | None = None,
    workers: int = _AT_ONCE,
    patience: RetryPolicy | None = None,
    memory: RollbackState | None = None,
    report: Callable[[TransferProgress], None] = lambda _: None,
) -> Pulled:
    """Downloads a release as a prepared version, which any TFDS can read.

    The version appears whole, after every byte is verified. A killed call can be resumed, and
    concurrent calls do the work once.

    Args:
      reference: For example `digits:1.*.*`: the highest release that is not yanked.
      store: The store, as for `open_store`.
      data_dir: The data directory; TFDS's default if None.
      splits: The splits to download, in addition to existing ones; None for all.
      overwrite: Whether to replace other data of that version, once the download is complete.
      use_lock: Whether to apply the project's lock.
      keys: The trusted keys; with them, unsigned releases are refused.
      workers: The number of parallel downloads.
      patience: How often to retry when the store fails.
      memory: What this machine has seen of stores.
      report: Called with the progress.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      ReleaseNotFoundError: There is no such release.
      YankedError: It is yanked.
      LockError: It is not the release in the project's lock.
      SplitNotFoundError: It has no such split.
      OverwriteError: Other data exists under that version, or the dataset's folder is a link out of
        the data directory.
      CorruptReleaseError: The store returns data that differs from what was published.
      SignatureError: A signature is missing or invalid, or the store's state is older than before.
      DiskFullError: There is not enough space.
      InvalidOptionError: The data directory is not on this machine.
      StoreError: The store cannot be used, or does not respond.
    """
    parsed = DatasetReference.of(reference)
    addresses.local_path(root_of(data_dir), "The data directory")  # before contacting the store
    found = resolve_release(
        parsed, store, use_lock=use_lock, keys=keys, patience=patience, memory=memory
    )  # fmt: skip
    version_dir = _version_dir(found, data_dir)
    job = ReleaseInstall(
        found.client, found.record, version_dir, overwrite, workers, report,
        check=lambda path: found.request.check(path, has_shards=False),
    )  # fmt: skip
    with explained(version_dir):
        done = job.run(splits)
        found.request.check(done.path, has_shards=True)
        keep_signatures(done.path, found.record, found.release, found.client.store.url)
        default = found.index.default_config
        if default is not None and found.record.config is not None:
            _note_default_config(version_dir.parents[1], default)
    return done


def _version_dir(found: ResolvedRelease, data_dir: str | os.PathLike[str] | None) -> Path:
    root = addresses.local_path(root_of(data_dir), "The data directory")
    return root / found.record.name / found.key


def _note_default_config(dataset_dir: Path, name: str) -> None:
    """Records the default config where TFDS looks for it."""
    path = dataset_dir / DEFAULT_CONFIG
    if not path.exists() and not leads_outside(path, dataset_dir.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Concurrent pulls of the same or another config may write it too.
        write_whole(path, json.dumps({"default_config_name": name}))


def fetch_or_stream(
    reference: str | DatasetReference,
    store: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    stream: bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | str = CACHE_BYTES,
    keys: Trusts | None = None,
    download: bool = True,
) -> ResolvedVersion:
    """Returns a release that can be read: one on this machine, pulled or streamed.

    The arguments and errors are those of `pull` and `attach`. With `stream`, downloads only what is
    read, unless all of it is on this machine; None does so if the disk has no room for all. Without
    `download`, it must be on this machine; the store is not asked for it.
    """
    if not download:
        prepared = resolve_request(Request.of(reference), data_dir)
        _check_copy(prepared, store, keys)
        return prepared

    def attached() -> Attached:
        return attach(reference, store, cache_dir, cache_bytes=cache_bytes, keys=keys)

    if stream:
        return resolve(_whole(reference, store, data_dir, keys) or attached().path)
    try:
        return resolve(fetch(reference, store, data_dir, keys=keys))
    except DiskFullError as error:
        if stream is not None:
            raise
        found = attached()
        _LOGGER.warning(
            "Streaming %s from %s, because there is no room for it (%s); caching at most %s in %s.",
            found.name, found.store, error.problem,
            human_size(found.cache_bytes), found.cache_dir,
        )  # fmt: skip
        return resolve(found.path)


def fetch(
    reference: str | DatasetReference,
    store: str | os.PathLike[str] | Store,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    keys: Trusts | None = None,
    patience: RetryPolicy | None = None,
    memory: RollbackState | None = None,
) -> Path:
    """Returns the directory of a release on this machine; pulls it if necessary.

    If the store does not respond, uses the local copy, with a warning. The arguments and errors are
    those of `pull`.
    """
    request = Request.of(reference)
    try:
        prepared = resolve_request(request, data_dir)
        patience = patience or _LITTLE_PATIENCE
    except (NotPreparedError, VersionBlockedError):
        prepared = None
    try:
        return pull(
            request.reference, store, data_dir, keys=keys, patience=patience, memory=memory
        ).path
    except StoreUnavailableError:
        if prepared is None:
            raise
        _check_copy(prepared, store, keys, memory)
        _LOGGER.warning(
            "%s does not respond; using the local copy %s. It may have been yanked since.",
            store if isinstance(store, (str, os.PathLike)) else store.url, prepared.path,
        )  # fmt: skip
        return prepared.path


def _check_copy(
    prepared: ResolvedVersion, store: str | os.PathLike[str] | Store, keys: Trusts | None,
    memory: RollbackState | None = None,
) -> None:  # fmt: skip
    """Checks a release on this machine as `pull` does, without asking the store."""
    prepared.check_lock()
    trusted = keys or keys_for(store)
    if trusted is not None:
        require_signed(prepared.path, trusted, memory, open_store(store).url)


def _whole(
    reference: str | DatasetReference,
    store: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None,
    keys: Trusts | None,
) -> Path | None:
    """Returns the directory of a release if all of it is on this machine."""
    found = resolve_release(DatasetReference.of(reference), store, keys=keys)
    version_dir = _version_dir(found, data_dir)
    try:
        installed = ReleaseInstall(found.client, found.record, version_dir).installed(None)
    except OverwriteError:
        installed = None
    if installed is None:
        return None
    found.request.check(installed.path, has_shards=True)
    return installed.path
