"""`pull`: a release becomes a prepared version on this machine, whole and verified."""

import json
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from my_datasets.building.storage import explained
from my_datasets.core import layout
from my_datasets.core.lock import Lock
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import (
    DataDirError,
    LockError,
    explain,
)
from my_datasets.input_pipeline.prepared import root_of
from my_datasets.publishing import places
from my_datasets.publishing.bringing import Bringing, Pulled
from my_datasets.publishing.choosing import chosen
from my_datasets.publishing.index import Release
from my_datasets.publishing.ledger import Ledger
from my_datasets.publishing.memory import Memory
from my_datasets.publishing.opening import open_store
from my_datasets.publishing.patience import Patience, PatientStore
from my_datasets.publishing.sealing import Trusts
from my_datasets.publishing.store import Store
from my_datasets.publishing.transfer import Progress

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
    patience: Patience | None = None,
    memory: Memory | None = None,
    report: Callable[[Progress], None] = lambda _: None,
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
      OverwriteError: There are other data under that version here.
      CorruptReleaseError: The store gives something else than was published.
      SignatureError: A signature is missing or wrong, or the store's state is an older one.
      DiskFullError: There is no room.
      StoreError: The store cannot be used, or does not answer.
    """
    parsed = DatasetReference.of(reference)
    lock = Lock.find() if use_lock else None
    exact = lock.exact(parsed) if lock is not None else parsed
    ledger = Ledger(PatientStore(open_store(store), patience), keys=keys, memory=memory)
    ledger.required()
    index = ledger.index(exact.name)
    key, release = chosen(index, exact, ledger.store.url)
    _check_lock(lock, parsed, release)
    root = layout.as_path(root_of(data_dir))
    if layout.is_remote(root_of(data_dir)):
        raise DataDirError(
            explain(f"{root} is not on this machine.", mend="name a directory of this machine")
        )
    wanted = ledger.record(exact.name, key, release)
    version_dir = root / exact.name / key
    job = Bringing(ledger, wanted, version_dir, overwrite, workers, report)
    with explained(version_dir):
        done = job.run(splits)
        if index.default_config is not None and wanted.config is not None:
            _note_default_config(root / exact.name, index.default_config)
    return done


def _check_lock(lock: Lock | None, reference: DatasetReference, release: Release) -> None:
    locked = lock.datasets.get(str(reference)) if lock is not None else None
    if lock is not None and locked is not None and locked.digest != release.digest:
        raise LockError(
            explain(
                "The store has other data under the version that is locked.",
                f"{str(reference)!r} is locked by {lock.path}",
                f"Expected: digest {locked.digest[:16]}",
                f"Found: digest {release.digest[:16]}",
                mend="pull from where the locked one is; or, if this one shall hold from now on: "
                f"my-datasets pull --no-lock, then my-datasets lock {reference}",
            )
        )


def _note_default_config(dataset_dir: Path, name: str) -> None:
    """Notes the config that is meant if none is named, where TFDS looks for it."""
    path = dataset_dir / Path(places.default_config_of("")).relative_to("/")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Others may note it at the same time: they pull the same, or another config.
        partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
        partial.write_text(json.dumps({"default_config_name": name}), "utf-8")
        partial.replace(path)
