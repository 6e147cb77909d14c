"""`pull`: a release becomes a prepared version on this machine, whole and verified."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from my_datasets.building.disk_space import explained
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
from my_datasets.publishing.install import Pulled, ReleaseInstall
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.model.trust import keep_signatures, keys_for, require_signed
from my_datasets.publishing.resolve_release import ResolvedRelease, resolve_release
from my_datasets.publishing.stream.attach import CACHE_BYTES, Attached, attach
from my_datasets.publishing.transfer import TransferProgress
from my_datasets.resolving.request import Request
from my_datasets.resolving.resolve_prepared import resolve_request, root_of
from my_datasets.storage import addresses
from my_datasets.storage.opening import open_store
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.retry import RetryPolicy
from my_datasets.storage.store import Store

_AT_ONCE = 8


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
    """Brings a release to this machine, as a prepared version that any TFDS reads.

    Every byte is verified before the version is there; it is there whole or not at all. Killed at
    any instant, the next call goes on where it was. Several at the same time do the work once.

    Args:
      reference: For example `digits:1.*.*`: the highest release that was not withdrawn.
      store: Where from, as `open_store` takes it.
      data_dir: Where to; TFDS's default if None.
      splits: Only these; those that are here already stay.
      overwrite: Replace other data under that version, once the new ones are whole.
      use_lock: Whether the project's lock says what the reference means.
      keys: Whose signatures count; with them, what is not signed is refused.
      workers: Files that are downloaded at the same time.
      patience: How long the store is given where it does not answer well.
      memory: What this machine has seen of stores.
      report: Told how far it is.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      ReleaseNotFoundError: There is no such release.
      YankedError: It was withdrawn.
      LockError: It is another one than the project's lock says.
      SplitNotFoundError: It has no such split.
      OverwriteError: There is something else under that version here, or the dataset's folder is a
        link that leads out of the data directory.
      CorruptReleaseError: The store gives something else than was published.
      SignatureError: A signature is missing or wrong, or the store's state is an older one.
      DiskFullError: There is no room.
      InvalidOptionError: The data directory is not on this machine.
      StoreError: The store cannot be used, or does not answer.
    """
    parsed = DatasetReference.of(reference)
    addresses.local_path(root_of(data_dir), "The data directory")  # before the store is asked
    found = resolve_release(
        parsed, store, use_lock=use_lock, keys=keys, patience=patience, memory=memory
    )  # fmt: skip
    version_dir = version_dir_of(found, data_dir)
    job = ReleaseInstall(
        found.ledger, found.record, version_dir, overwrite, workers, report,
        check=lambda path: found.request.check(path, has_shards=False),
    )  # fmt: skip
    with explained(version_dir):
        done = job.run(splits)
        found.request.check(done.path, has_shards=True)
        keep_signatures(done.path, found.record, found.release, found.ledger.store.url)
        default = found.index.default_config
        if default is not None and found.record.config is not None:
            _note_default_config(version_dir.parents[1], default)
    return done


def version_dir_of(found: ResolvedRelease, data_dir: str | os.PathLike[str] | None) -> Path:
    """Returns the directory that a release has on this machine.

    Raises:
      InvalidOptionError: The data directory is not on this machine.
    """
    root = addresses.local_path(root_of(data_dir), "The data directory")
    return root / found.record.name / found.key


def _note_default_config(dataset_dir: Path, name: str) -> None:
    """Notes the config that is meant if none is named, where TFDS looks for it."""
    path = dataset_dir / Path(store_layout.default_config_of("")).relative_to("/")
    if not path.exists() and not leads_outside(path, dataset_dir.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Others may note it at the same time: they pull the same, or another config.
        write_whole(path, json.dumps({"default_config_name": name}))


_LOGGER = get_logger(__name__)

# Where there is a copy already, nobody waits long for a store that cannot be reached.
_LITTLE_PATIENCE = RetryPolicy(tries=2)


def fetch_or_stream(
    reference: str | DatasetReference,
    store: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    stream: bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | str = CACHE_BYTES,
    keys: Trusts | None = None,
) -> Path:
    """Returns a directory by which a release can be read: it is here, or comes as it is read.

    Args:
      reference: As for `pull`.
      store: The address of the store.
      data_dir: As for `pull`.
      stream: Whether to bring only what is read, unless all of it is here; None to do so if the
        disk has no room for it.
      cache_dir: As for `attach`.
      cache_bytes: As for `attach`.
      keys: As for `pull`.

    Raises:
      MyDatasetsError: As `pull` and `attach`.
    """

    def attached() -> Attached:
        return attach(reference, store, cache_dir, cache_bytes=cache_bytes, keys=keys)

    if stream:
        return _whole(reference, store, data_dir, keys) or attached().path
    try:
        return fetch(reference, store, data_dir, keys=keys)
    except DiskFullError as error:
        if stream is not None:
            raise
        found = attached()
        _LOGGER.warning(
            "%s is streamed from %s, as there is no room for it (%s); at most %s of it lie in %s.",
            found.name, found.store, str(error).partition("\n")[0],
            human_size(found.cache_bytes), found.cache_dir,
        )  # fmt: skip
        return found.path


def fetch(
    reference: str | DatasetReference,
    store: str | os.PathLike[str] | Store,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    keys: Trusts | None = None,
    patience: RetryPolicy | None = None,
    memory: RollbackState | None = None,
) -> Path:
    """Returns the directory of a release on this machine.

    The store says which release is meant, and whether it was withdrawn. Where it does not answer,
    the copy that is here is taken, with a warning.

    The arguments and errors are those of `pull`.
    """
    request = Request.of(reference)
    here = _here(request, data_dir)
    if here is not None:
        patience = patience or _LITTLE_PATIENCE
    try:
        return pull(
            request.reference, store, data_dir, keys=keys, patience=patience, memory=memory
        ).path
    except StoreUnavailableError:
        if here is None:
            raise
        request.check(here, has_shards=True)
        trusted = keys or keys_for(store)
        if trusted is not None:
            require_signed(here, trusted, memory, open_store(store).url)
        _LOGGER.warning(
            "%s does not answer; taken is what is here: %s. Whether it was withdrawn is not known.",
            store if isinstance(store, (str, os.PathLike)) else store.url, here,
        )  # fmt: skip
        return here


def _whole(
    reference: str | DatasetReference,
    store: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None,
    keys: Trusts | None,
) -> Path | None:
    """Returns the directory of a release if all of it is on this machine."""
    found = resolve_release(DatasetReference.of(reference), store, keys=keys)
    version_dir = version_dir_of(found, data_dir)
    try:
        there = ReleaseInstall(found.ledger, found.record, version_dir).there(None)
    except OverwriteError:
        return None
    if there is not None:
        found.request.check(there.path, has_shards=True)
    return there.path if there is not None else None


def _here(request: Request, data_dir: str | os.PathLike[str] | None) -> Path | None:
    try:
        return resolve_request(request, data_dir).path
    except (NotPreparedError, VersionBlockedError):
        return None
