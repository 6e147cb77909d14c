"""A release on this machine: the copy that is here, or pulled."""

import logging
import os
from pathlib import Path

from my_datasets.core.lock import Lock
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import NotPreparedError, StoreUnavailableError
from my_datasets.input_pipeline.prepared import folder_of
from my_datasets.publishing.memory import Memory
from my_datasets.publishing.patience import Patience
from my_datasets.publishing.puller import pull
from my_datasets.publishing.sealing import Trusts
from my_datasets.publishing.store import Store

_LOGGER = logging.getLogger(__name__)


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
    try:
        return pull(reference, store, data_dir, keys=keys, patience=patience, memory=memory).path
    except StoreUnavailableError as error:
        parsed = DatasetReference.of(reference)
        lock = Lock.find()
        try:
            found = folder_of(lock.exact(parsed) if lock is not None else parsed, data_dir)
        except NotPreparedError:
            raise error from None
        if lock is not None:
            lock.check(parsed, found, has_shards=True)
        _LOGGER.warning(
            "%s does not answer; taken is what is here: %s. Whether it was withdrawn is not known.",
            store if isinstance(store, (str, os.PathLike)) else store.url, found,
        )  # fmt: skip
        return found
