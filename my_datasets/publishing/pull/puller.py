"""`pull`: a release becomes a prepared version on this machine, whole and verified."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from my_datasets.building.disk_errors import explained
from my_datasets.building.staging import leads_outside
from my_datasets.core.reference import DatasetReference
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.rollback_state import Memory
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.model.trust import keep_signatures
from my_datasets.publishing.pull.install import Bringing, Pulled
from my_datasets.publishing.resolve_release import Resolved, resolved
from my_datasets.publishing.transfer import TransferProgress
from my_datasets.resolving.resolve_prepared import root_of
from my_datasets.storage import addresses
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
    memory: Memory | None = None,
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
    found = resolved(
        parsed, store, use_lock=use_lock, keys=keys, patience=patience, memory=memory
    )  # fmt: skip
    version_dir = version_dir_of(found, data_dir)
    job = Bringing(
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


def version_dir_of(found: Resolved, data_dir: str | os.PathLike[str] | None) -> Path:
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
