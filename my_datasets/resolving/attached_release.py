"""Attached releases, whose shards are fetched from a store through a cache."""

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from my_datasets.core.processes import PerProcess
from my_datasets.core.sizes import human_size
from my_datasets.errors import (
    CorruptReleaseError,
    CorruptShardError,
    InvalidOptionError,
    NotInStoreError,
    NotPreparedError,
    damaged_release,
)
from my_datasets.metadata import manifest, sidecars
from my_datasets.metadata.dataset_info import MALFORMED, Declared
from my_datasets.metadata.layout import METADATA_FILES, RELEASE_RECORD
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.records.attachments import Attachment
from my_datasets.resolving.shard_fetcher import ShardFetcher
from my_datasets.storage.json_files import MOST_BYTES, parse_json
from my_datasets.storage.regular_files import read_regular
from my_datasets.storage.shard_cache import RemoteFile, ShardCache

if TYPE_CHECKING:
    from my_datasets.storage.retry import RetryingStore


class AttachedRelease:
    """An attached release, as the provider of its shards: see `ShardProvider`.

    Attributes:
      files: The files with examples, by name.
      sizes: The size of each file of the release, in bytes.
      folder: The release's folder, from the store's address on.
      address: The directory with the metadata.
      shards_dir: The directory of shards while they are read.
      modified: 0: files of releases never change.
    """

    modified = 0

    def __init__(self, version_dir: Path, attachment: Attachment | None = None) -> None:
        """Takes the directory with the release's metadata, which are verified.

        Args:
          version_dir: The directory.
          attachment: The origin of its shards; None for this machine's record of it.

        Raises:
          NotPreparedError: This machine did not attach it, or it has changed since.
        """
        found = attachment or Attachment.find(version_dir)
        if found is None:
            raise _not_attached(version_dir, "this machine did not attach it")
        self._dir = version_dir
        self._attachment = found
        self.address = str(version_dir)
        self.shards_dir = os.path.normpath(Path(os.path.realpath(version_dir), found.cache))
        # Now, not on first use: a process may be forked while a thread initialises it.
        self.folder, files, shards = _release_in(version_dir, found.record)
        self.sizes = {name: one.bytes for name, one in files.items()}
        self.files = {name: files[name] for name in shards}
        self._store: PerProcess[RetryingStore] = PerProcess()
        # Imported here because they take long, and attached releases alone need them; and not on
        # first use, because a process may be forked while one of its threads imports.
        from my_datasets.storage import backends, retry

        self._open_store = lambda: retry.RetryingStore(backends.open_store(found.store))

    def __reduce__(self) -> tuple[type["AttachedRelease"], tuple[Path, Attachment]]:
        return type(self), (self._dir, self._attachment)

    @property
    def url(self) -> str:
        """The release's folder in the store."""
        return f"{self._attachment.store}/{self.folder}"

    def fetcher(self, names: Collection[str], max_cached_shards: int | None) -> ShardFetcher:
        """Returns the object that fetches some of the shards; see `ShardProvider`."""
        sizes = sorted((self.files[name].bytes for name in names), reverse=True)
        most = self._attachment.most
        at_once = sizes[: max_cached_shards or 0]
        needed = sum(at_once)
        if needed > most:
            raise InvalidOptionError(
                f"{len(at_once)} shards of {self.url} are to be here at once.",
                f"They have up to {human_size(needed)}; the cache may have {human_size(most)}",
                fix=f"attach it with cache_bytes={needed} or more; or give a "
                "smaller shuffle_window, or interleave_cycle_length of TFDS's ReadConfig",
            )
        spare = (most - needed) // max(1, *sizes[:1])
        return ShardFetcher(self, ShardCache(Path(self.shards_dir), most), spare=spare)

    def beside(self, name: str) -> tuple[str, ...]:  # noqa: ARG002
        """Does nothing: record indexes are already on this machine."""
        return ()

    def read(self, name: str) -> Iterator[bytes]:
        """Yields the bytes of a shard in the store.

        Raises:
          CorruptReleaseError: The shard is missing.
          StoreError: The store cannot be read.
        """
        store = self._store.get(self._open_store)
        try:
            yield from store.read(f"{self.folder}/{name}", 0, self.files[name].bytes)
        except NotInStoreError as error:
            raise self.damaged(name, "it is not there") from error

    def damaged(self, name: str, found: str) -> CorruptReleaseError:
        """Returns the error for a shard that differs from the published one."""
        return damaged_release(f"{self.folder}/{name} in {self._attachment.store}", found)

    def place(self, name: str, cached: Path) -> None:
        """Ensures that readers open the verified file.

        Raises:
          CorruptShardError: The directory has another file of that name.
        """
        link = self._dir / name
        # Other processes may have evicted it meanwhile: opening it fetches it again.
        with contextlib.suppress(FileNotFoundError):
            if not link.samefile(cached):
                raise CorruptShardError(
                    f"{link} does not lead to {cached}.", fix="attach the release again"
                )


def _release_in(
    version_dir: Path, identity: str
) -> tuple[str, dict[str, RemoteFile], Iterable[str]]:
    """Returns the release in an attached directory: its folder, files, and names of its shards.

    `identity` is the SHA-256 of the release record that `attach` checked.
    """
    try:
        data = read_regular(version_dir / RELEASE_RECORD, MOST_BYTES)
        if hashlib.sha256(data).hexdigest() != identity:
            raise _not_attached(version_dir, f"{RELEASE_RECORD} was changed")
        record = parse_json(data)
        parts = (record["name"], record["config"], record["version"])
        folder = "/".join(part for part in parts if part)
        files = {one["name"]: RemoteFile.of(one["sha256"], one["bytes"]) for one in record["files"]}
        _require_unchanged(version_dir, files, (*METADATA_FILES, manifest.FILE_NAME))
        declared = Declared.read(version_dir)
        shards = {one.name: None for some in declared.splits.values() for one in some}
        read = (one for one in files if sidecars.kind_of(one) is not Sidecar.KEYS)
        _require_unchanged(version_dir, files, (name for name in read if name not in shards))
    except (OSError, *MALFORMED) as error:
        raise _not_attached(version_dir, str(error)) from error
    return folder, files, shards


def _require_unchanged(
    version_dir: Path, files: dict[str, RemoteFile], names: Iterable[str]
) -> None:
    for name in names:
        if not files[name].is_at(version_dir / name):
            raise _not_attached(version_dir, f"{name} is missing, or was changed")


def _not_attached(version_dir: Path, found: str) -> NotPreparedError:
    return NotPreparedError(
        f"{version_dir} says that its shards are in a store, and cannot be read.",
        f"Found: {found}",
        "The origin of shards is read from this machine's state, never from the directory",
        fix="attach the release again: my_datasets.attach(REFERENCE, STORE)",
    )
