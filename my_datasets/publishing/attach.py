"""`attach`: makes a release readable whose shards stay in its store until they are read.

Only a few of its shards at a time are on this machine.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from my_datasets.building import staging
from my_datasets.core.reference import DatasetReference
from my_datasets.core.sizes import human_size, in_bytes
from my_datasets.errors import DataDirError, InvalidOptionError, NotPreparedError
from my_datasets.publishing.install import begin, finish, read_metadata, replace_version
from my_datasets.publishing.model.record import is_metadata, read_with, shards_of
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.model.trust import keep_signatures
from my_datasets.publishing.resolve_release import ResolvedRelease, resolve_release
from my_datasets.publishing.transfer import TransferProgress, fetch
from my_datasets.records import attachments
from my_datasets.records.attachments import Attachment
from my_datasets.resolving.attached_release import AttachedRelease
from my_datasets.storage import addresses
from my_datasets.storage.disk_space import explained
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.retry import RetryPolicy
from my_datasets.storage.shard_cache import ShardCache
from my_datasets.storage.user_folders import cache_folder

CACHE_BYTES = "10GiB"
_RELEASES = "releases"
_SHARDS = "shards"
_WORK = ".attach"
# Digits, in a directory's name, of the hash that identifies an attachment.
_SHOWN = 16
_IN_THE_STATE = (
    '{"about": "The shards of this version come from a store when they are read. Which one is in '
    "the state folder of who attached it. Read elsewhere, this directory is nothing: attach the "
    'release there."}\n'
)


@dataclass(frozen=True)
class Attached:
    """A release whose shards are fetched when they are read; usable as its metadata's directory.

    Attributes:
      name: The release's full name.
      path: The directory with its metadata.
      store: The origin of its shards.
      digest: The digest of its content.
      bytes: The size of all its files in the store.
      cache_dir: The directory of shards while they are read.
      cache_bytes: The maximum total size of the shards there.
    """

    name: str
    path: Path
    store: str
    digest: str
    bytes: int
    cache_dir: Path
    cache_bytes: int

    def __fspath__(self) -> str:
        return str(self.path)


def attach(
    reference: str | DatasetReference,
    store: str | os.PathLike[str],
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    cache_bytes: int | str = CACHE_BYTES,
    use_lock: bool = True,
    keys: Trusts | None = None,
    patience: RetryPolicy | None = None,
    memory: RollbackState | None = None,
    report: Callable[[TransferProgress], None] = lambda _: None,
) -> Attached:
    """Makes a release readable on this machine without downloading all of it.

    Its metadata and record indexes are downloaded and verified. Whole shards are fetched when they
    are read, and each is verified before any reader sees a byte of it. They are kept in a cache of
    limited size, which any number of processes and releases can share.

    Args:
      reference: For example `digits:1.*.*`: the highest release that was not yanked.
      store: The address of the store, as `pull` takes it.
      cache_dir: Where the cache is; a folder of the user's cache if None.
      cache_bytes: The maximum total size of cached shards, as a number or `"10GiB"`.
      use_lock: Whether to apply the project's lock to the reference.
      keys: The keys whose signatures are trusted; if given, anything unsigned is refused.
      patience: How often failed requests to the store are repeated during this call.
      memory: What this machine has seen of stores.
      report: Called with the progress of the metadata.

    Returns:
      The attached release, which `plan`, `pipeline`, `batches`, `torch_loader` and `source` accept
      like a version's directory.

    Raises:
      InvalidReferenceError, ReleaseNotFoundError, YankedError, LockError, CorruptReleaseError,
      SignatureError, DiskFullError, StoreError: As `pull`.
      InvalidOptionError: The cache has no room for the largest shard.
      DataDirError: It has no TFRecords.
    """
    cache = addresses.local_path(cache_dir or cache_folder("attached"), "cache_dir").absolute()
    most = in_bytes(cache_bytes)
    found = resolve_release(
        DatasetReference.of(reference), store, use_lock=use_lock, keys=keys, patience=patience,
        memory=memory,
    )  # fmt: skip
    # As given, because it selects the credentials: `gs://anonymous@BUCKET`. No address has a
    # secret.
    address = os.fspath(store) if "://" in os.fspath(store) else found.client.store.url
    identity = json.dumps([address, found.record.identity, most])
    key = hashlib.sha256(identity.encode()).hexdigest()[:_SHOWN]
    version_dir = cache / _RELEASES / key / found.record.name / found.key
    with explained(cache):
        shards = ShardCache(cache / _SHARDS, most)
        links = os.path.relpath(shards.directory, version_dir)
        wanted = Attachment(address, links, most, found.record.identity)
        if Attachment.find(version_dir) != wanted or not _is_whole(version_dir, wanted):
            with staging.exclusive(version_dir):
                # Another machine or user may have created it in a shared cache.
                if not _is_whole(version_dir, wanted):
                    _create(found, version_dir, shards, report)
                wanted.write(version_dir)
        found.request.check(version_dir, has_shards=False)
        keep_signatures(version_dir, found.record, found.release, found.client.store.url)
    mine = found.record
    return Attached(
        mine.full_name, version_dir, found.client.store.url, mine.digest, mine.size, cache, most
    )


def _is_whole(version_dir: Path, wanted: Attachment) -> bool:
    """Returns whether a directory has the metadata of a release, and links to its shards."""
    try:
        shards = AttachedRelease(version_dir, wanted).files
        links = {name: (version_dir / name).readlink() for name in shards}
    except (NotPreparedError, OSError):
        return False
    expected = {name: Path(wanted.cache, one.key) for name, one in shards.items()}
    return links == expected and attachments.is_attached(version_dir)


def _create(
    found: ResolvedRelease,
    version_dir: Path,
    cache: ShardCache,
    report: Callable[[TransferProgress], None],
) -> None:
    """Creates the directory of an attached release atomically."""
    work = version_dir.with_name(f".{version_dir.name}{_WORK}")
    begin(work, found.record)
    fetch(found.client, found.record, work, filter(is_metadata, found.record.files))
    declared, _ = read_metadata(
        found.client, found.record, work, lambda path: found.request.check(path, has_shards=False)
    )
    if declared.file_format != "tfrecord":
        raise DataDirError(
            f"{found.url} has {declared.file_format} files.",
            "Expected TFRecords: others cannot be streamed",
            fix="pull it",
        )
    shards = [one for one in found.record.files if one.name in shards_of(declared)]
    largest = max((one.bytes for one in shards), default=0)
    if largest > cache.most:
        raise InvalidOptionError(
            f"A shard of {found.url} has {human_size(largest)}.",
            f"The cache may have {human_size(cache.most)}",
            fix=f"give cache_bytes={largest} or more",
        )
    metadata = read_with(found.record, declared)
    fetch(found.client, found.record, work, metadata, report=report)
    finish(work, {one.name for one in metadata})
    for one in shards:
        # Readers open a shard by its name here; the file itself is shared by all releases that have
        # it.
        cached = os.path.relpath(cache.path_of(one.sha256), version_dir)
        (work / one.name).symlink_to(cached)
    write_whole(work / attachments.FILE_NAME, _IN_THE_STATE)
    replace_version(work, version_dir)
