"""Shards of an attached release: how they come from the store, through a shelf."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from my_datasets.building.disk_space import explained
from my_datasets.core.sizes import human_size
from my_datasets.errors import (
    CorruptShardError,
    InvalidOptionError,
    NotInStoreError,
    NotPreparedError,
    explain,
)
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.file_hashes import check_indexes
from my_datasets.publishing.download import damaged
from my_datasets.publishing.model import record, store_layout
from my_datasets.publishing.model.record import Record, ReleasedFile
from my_datasets.publishing.model.release_metadata import read_with, shards_of
from my_datasets.publishing.stream.background_pool import BackgroundPool
from my_datasets.records.shard_provider import Attachment
from my_datasets.storage.opening import open_store
from my_datasets.storage.regular_files import read_regular
from my_datasets.storage.retry import RetryingStore
from my_datasets.storage.verified_files import VerifiedFiles, verified_files

if TYPE_CHECKING:
    from my_datasets.publishing.stream.shard_cache import ShardCache

# Shards that come at the same time before they are wanted.
_AT_ONCE = 4


class AttachedOrigin:
    """Where the shards of an attached release come from: see `on_demand.Origin`.

    Attributes:
      shards: The files that hold examples, by name.
    """

    def __init__(self, version_dir: Path, attachment: Attachment | None = None) -> None:
        """Takes the directory with the release's metadata, which are verified.

        Args:
          version_dir: The directory.
          attachment: Where its shards come from; None for what this machine knows of it.

        Raises:
          NotPreparedError: This machine did not attach it, or it was changed since.
        """
        self._dir = version_dir
        found = attachment or Attachment.find(version_dir)
        if found is None:
            raise _not_attached(version_dir, "this machine did not attach it")
        self._attachment = found
        # At once, not when it is wanted: a process may be forked while a thread is about it.
        self._record, self.shards = _release_in(version_dir, found.record)

    @property
    def url(self) -> str:
        """The release's folder in the store."""
        return f"{self._attachment.store}/{self.folder}"

    @property
    def store(self) -> str:
        """The store's address."""
        return self._attachment.store

    @property
    def attachment(self) -> Attachment:
        """Where the shards come from, and where they are kept."""
        return self._attachment

    @property
    def folder(self) -> str:
        """The release's folder, from the store's address on."""
        return store_layout.release_of(self._record.name, self._record.key)

    @property
    def address(self) -> str:
        """The directory with the metadata."""
        return str(self._dir)

    @property
    def held_at(self) -> str:
        """Where shards lie while they are read."""
        return os.path.normpath(Path(os.path.realpath(self._dir), self._attachment.cache))

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each file, in bytes."""
        return {one.name: one.bytes for one in self._record.files}

    @property
    def modified(self) -> int:
        """Files of releases never change."""
        return 0

    def shelf(self) -> "ShardCache":
        """Returns where the shards lie."""
        from my_datasets.publishing.stream.shard_cache import ShardCache

        return ShardCache(Path(self.held_at), self._attachment.most)

    def bringer(self, names: Collection[str], held: int | None) -> "Shards":
        """Returns what brings some of the shards; see `on_demand.Origin`."""
        sizes = sorted((self.shards[name].bytes for name in names), reverse=True)
        most = self._attachment.most
        at_once = sizes[: held or 0]
        needed = sum(at_once)
        if needed > most:
            raise InvalidOptionError(
                explain(
                    f"{len(at_once)} shards of {self.url} are to be here at once.",
                    f"They have up to {human_size(needed)}; the cache may have {human_size(most)}",
                    fix=f"attach it with cache_bytes={needed} or more; or give a "
                    "smaller shuffle_window, or interleave_cycle_length of TFDS's ReadConfig",
                )
            )
        return Shards(self, (most - needed) // max(1, *sizes[:1]))


class Shards:
    """Brings shards of an attached release to its shelf; can be sent to other processes."""

    def __init__(self, origin: AttachedOrigin, spare: int) -> None:
        """Asks nothing of the store yet.

        Args:
          origin: Where they come from.
          spare: How many shards have room beside those that are needed at once.
        """
        self._origin = origin
        self._spare = spare
        self._shelf = origin.shelf()
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._errands: BackgroundPool[Path] | None = None
        self._store: RetryingStore | None = None
        self._process = os.getpid()  # last: whoever sees it finds the others

    def __reduce__(self) -> tuple[Any, ...]:
        return _shards_of, (self._origin.address, self._origin.attachment, self._spare)

    @property
    def most(self) -> int:
        """None stay open between reads: what is open is not taken away to make room."""
        return 0

    @property
    def spare(self) -> int:
        """How many shards have room beside those that are needed at once."""
        return self._spare

    def __call__(self, path: Path) -> None:
        """Sees that a shard is here.

        Raises:
          CorruptReleaseError: The store gives something else than was published.
          DiskFullError: The disk has no room for it.
          StoreError: The store cannot be read.
        """
        self._bring(path.name)
        # Others may have made room of it meanwhile: who opens it asks again.
        with contextlib.suppress(FileNotFoundError):
            check_indexes(path.parent, {path.name: self._origin.shards[path.name].sha256})

    def ahead(self, paths: Iterable[Path]) -> None:
        """Begins to bring shards that will be wanted, as far as they have room."""
        self._forked()
        with self._lock:
            if self._errands is None:
                self._errands = BackgroundPool(self.try_to_bring, _AT_ONCE)
        for path in paths:
            self._errands.give(path)

    def try_to_bring(self, path: Path) -> None:
        """Brings a shard if it has room; who wants it asks again, and is told what is wrong."""
        with contextlib.suppress(Exception):
            self._bring(path.name, is_optional=True)

    def _bring(self, name: str, *, is_optional: bool = False) -> None:
        self._forked()
        one = self._origin.shards.get(name)
        if one is None:
            raise CorruptShardError(
                explain(f"{self._origin.url} has no shard {name}.", fix="make the plan anew")
            )
        source = f"{self._origin.folder}/{name} in {self._origin.store}"
        with explained(Path(self._origin.held_at)):
            self._shelf.bring(
                one, lambda: self._read(one, source), source, is_optional=is_optional
            )  # fmt: skip
        self._require_link(name, self._shelf.path_of(one.sha256))

    def _require_link(self, name: str, shard: Path) -> None:
        """Sees that what readers open is what was verified."""
        link = Path(self._origin.address) / name
        # Others may have made room of it meanwhile: who opens it asks again.
        with contextlib.suppress(FileNotFoundError):
            if not link.samefile(shard):
                raise CorruptShardError(
                    explain(f"{link} does not lead to {shard}.", fix="attach the release again")
                )

    def _read(self, one: ReleasedFile, source: str) -> Iterator[bytes]:
        with self._lock:
            if self._store is None:
                self._store = RetryingStore(open_store(self._origin.store))
        try:
            yield from self._store.read(f"{self._origin.folder}/{one.name}", 0, one.bytes)
        except NotInStoreError as error:
            raise damaged(source, "it is not there") from error

    def _forked(self) -> None:
        if self._process != os.getpid():
            self._begin()  # its locks and connections may be in use by threads that are not here


def _shards_of(version_dir: str, attachment: Attachment, spare: int) -> Shards:
    return Shards(AttachedOrigin(Path(version_dir), attachment), spare)


def _release_in(version_dir: Path, identity: str) -> tuple[Record, dict[str, ReleasedFile]]:
    """Returns the record of the release in an attached directory, and its shards by name.

    Args:
      version_dir: The directory.
      identity: The SHA-256 that the record must have.

    Raises:
      NotPreparedError: The metadata are not those of the release.
    """
    path = version_dir / record.FILE_NAME
    try:
        data = read_regular(path, record.MOST_BYTES)
        if hashlib.sha256(data).hexdigest() != identity:
            raise _not_attached(version_dir, f"{path.name} was changed")
        found = Record.parse(data, str(path))
        known = verified_files()
        files = {one.name: one for one in found.files}
        _require_unchanged(version_dir, known, (files[name] for name in record.FIRST))
        declared = Declared.read(version_dir)
        _require_unchanged(version_dir, known, read_with(found, declared))
    except (OSError, ValueError) as error:
        raise _not_attached(version_dir, str(error)) from error
    return found, {name: files[name] for name in shards_of(declared)}


def _require_unchanged(
    version_dir: Path, known: VerifiedFiles, files: Iterable[ReleasedFile]
) -> None:
    for one in files:
        if not known.has(version_dir / one.name, one.sha256, one.bytes):
            raise _not_attached(version_dir, f"{one.name} is missing, or was changed")


def _not_attached(version_dir: Path, found: str) -> NotPreparedError:
    return NotPreparedError(
        explain(
            f"{version_dir} says that its shards are in a store, and cannot be read.",
            f"Found: {found}",
            "Where shards come from is known from this machine's state, never from the directory",
            fix="attach the release again: my_datasets.attach(REFERENCE, STORE)",
        )
    )
