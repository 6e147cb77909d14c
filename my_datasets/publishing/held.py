"""A release on this machine: the copy that is here, or pulled."""

import logging
import os
from pathlib import Path

from my_datasets.core.lock import Lock
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import NotPreparedError, StoreUnavailableError, VersionBlockedError
from my_datasets.input_pipeline.prepared import folder_of
from my_datasets.publishing.memory import Memory
from my_datasets.publishing.patience import Patience
from my_datasets.publishing.puller import pull
from my_datasets.publishing.sealing import Trusts
from my_datasets.publishing.store import Store

_LOGGER = logging.getLogger(__name__)

# Where there is a copy already, nobody waits long for a store that cannot be reached.
_LITTLE_PATIENCE = Patience(tries=2)


def held(
    reference: str | DatasetReference,
    store: str | os.PathLike[str] | Store,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    keys: Trusts | None = None,
    patience: Patience | None = None,
    memory: Memory | None = None,
) -> Path:
    """Returns the directory of a release on this machine.

    The store says which release is meant, and whether it was withdrawn. Where it does not answer,
    the copy that is here is taken, with a warning.

    The arguments and errors are those of `pull`.
    """
    parsed = DatasetReference.of(reference)
    lock = Lock.find()
    here = _here(lock.exact(parsed) if lock is not None else parsed, data_dir)
    if here is not None:
        patience = patience or _LITTLE_PATIENCE
    try:
        return pull(parsed, store, data_dir, keys=keys, patience=patience, memory=memory).path
    except StoreUnavailableError:
        if here is None:
            raise
        if lock is not None:
            lock.check(parsed, here, has_shards=True)
        _LOGGER.warning(
            "%s does not answer; taken is what is here: %s. Whether it was withdrawn is not known.",
            store if isinstance(store, (str, os.PathLike)) else store.url, here,
        )  # fmt: skip
        return here


def _here(reference: DatasetReference, data_dir: str | os.PathLike[str] | None) -> Path | None:
    try:
        return folder_of(reference, data_dir)
    except (NotPreparedError, VersionBlockedError):
        return None
