"""A release to be read: the copy that is here, or pulled, or streamed from its store."""

import os
from pathlib import Path

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
from my_datasets.publishing.model.rollback_state import Memory
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.model.trust import keys_for, require_signed
from my_datasets.publishing.pull.install import Bringing
from my_datasets.publishing.pull.puller import pull, version_dir_of
from my_datasets.publishing.resolve_release import resolved
from my_datasets.publishing.stream.attach import CACHE_BYTES, Attached, attach
from my_datasets.resolving.request import Request
from my_datasets.resolving.resolve_prepared import directory_of
from my_datasets.storage.opening import open_store
from my_datasets.storage.retry import RetryPolicy
from my_datasets.storage.store import Store

_LOGGER = get_logger(__name__)

# Where there is a copy already, nobody waits long for a store that cannot be reached.
_LITTLE_PATIENCE = RetryPolicy(tries=2)


def at_hand(
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
        return held(reference, store, data_dir, keys=keys)
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


def held(
    reference: str | DatasetReference,
    store: str | os.PathLike[str] | Store,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    keys: Trusts | None = None,
    patience: RetryPolicy | None = None,
    memory: Memory | None = None,
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
    found = resolved(DatasetReference.of(reference), store, keys=keys)
    version_dir = version_dir_of(found, data_dir)
    try:
        there = Bringing(found.ledger, found.record, version_dir).there(None)
    except OverwriteError:
        return None
    if there is not None:
        found.request.check(there.path, has_shards=True)
    return there.path if there is not None else None


def _here(request: Request, data_dir: str | os.PathLike[str] | None) -> Path | None:
    try:
        return directory_of(request, data_dir)
    except (NotPreparedError, VersionBlockedError):
        return None
