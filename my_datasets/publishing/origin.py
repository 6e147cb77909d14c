"""Shards of an attached release: how they come from the store, through a shelf."""

import contextlib
import json
import os
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from my_datasets.building.storage import explained
from my_datasets.core.declared import MALFORMED, Declared
from my_datasets.core.sizes import human_size
from my_datasets.errors import (
    CorruptShardError,
    InvalidOptionError,
    NotInStoreError,
    NotPreparedError,
    explain,
)
from my_datasets.publishing import places, record
from my_datasets.publishing.errands import Errands
from my_datasets.publishing.metadata import shards_of
from my_datasets.publishing.pulling import damaged
from my_datasets.publishing.record import Record, ReleasedFile
from my_datasets.records import on_demand
from my_datasets.stores.opening import open_store
from my_datasets.stores.patience import PatientStore

if TYPE_CHECKING:
    from my_datasets.publishing.shelf import Shelf

_FORMAT = 1
# Shards that come at the same time before they are wanted.
_AT_ONCE = 4


@dataclass(frozen=True)
class Attachment:
    """Where the shards of a version come from, and where they lie: a small file beside metadata.

    Attributes:
      store: The store's address.
      shelf: The directory in which shards lie, from the version's on.
      most: How many bytes may lie there.
    """

    store: str
    shelf: str
    most: int

    def write(self, version_dir: Path) -> None:
        """Writes it into a version's directory."""
        whole = {"format": _FORMAT, **vars(self)}
        (version_dir / on_demand.FILE_NAME).write_text(json.dumps(whole, indent=1) + "\n", "utf-8")

    @classmethod
    def read(cls, version_dir: Path) -> "Attachment":
        """Returns what was written.

        Raises:
          NotPreparedError: It is something else.
        """
        path = version_dir / on_demand.FILE_NAME
        try:
            whole = json.loads(path.read_text("utf-8"))
            if whole["format"] != _FORMAT:
                raise ValueError(f"format {whole['format']}")
            return cls(str(whole["store"]), str(whole["shelf"]), int(whole["most"]))
        except (OSError, *MALFORMED) as error:
            raise NotPreparedError(
                explain(
                    f"{path} does not say where the shards come from: {error}.",
                    mend=f"delete {version_dir}, and attach the release again",
                )
            ) from error


class AttachedOrigin:
    """Where the shards of an attached release come from: see `on_demand.Origin`.

    Attributes:
      shards: The files that hold examples, by name.
    """

    def __init__(self, version_dir: Path) -> None:
        """Takes the directory with the release's metadata.

        Raises:
          NotPreparedError, CorruptReleaseError: It is none.
        """
        self._dir = version_dir
        self._attachment = Attachment.read(version_dir)
        path = version_dir / record.FILE_NAME
        self._record = Record.parse(path.read_bytes(), str(path))
        # At once, not when it is wanted: a process may be forked while a thread is about it.
        names = shards_of(Declared.read(version_dir))
        self.shards = {one.name: one for one in self._record.files if one.name in names}

    @property
    def url(self) -> str:
        """The release's folder in the store."""
        return f"{self._attachment.store}/{self.folder}"

    @property
    def store(self) -> str:
        """The store's address."""
        return self._attachment.store

    @property
    def folder(self) -> str:
        """The release's folder, from the store's address on."""
        return places.release_of(self._record.name, self._record.key)

    @property
    def address(self) -> str:
        """The directory with the metadata."""
        return str(self._dir)

    @property
    def held_at(self) -> str:
        """Where shards lie while they are read."""
        return os.path.normpath(self._dir / self._attachment.shelf)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each file, in bytes."""
        return {one.name: one.bytes for one in self._record.files}

    @property
    def modified(self) -> int:
        """Files of releases never change."""
        return 0

    def shelf(self) -> "Shelf":
        """Returns where the shards lie."""
        from my_datasets.publishing.shelf import Shelf

        return Shelf(Path(self.held_at), self._attachment.most)

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
                    mend=f"attach it with cache_bytes={needed} or more; or give a "
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
        self._errands: Errands[Path] | None = None
        self._store: PatientStore | None = None
        self._process = os.getpid()  # last: whoever sees it finds the others

    def __reduce__(self) -> tuple[Any, ...]:
        return _shards_of, (self._origin.address, self._spare)

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

    def ahead(self, paths: Iterable[Path]) -> None:
        """Begins to bring shards that will be wanted, as far as they have room."""
        self._forked()
        with self._lock:
            if self._errands is None:
                self._errands = Errands(self.try_to_bring, _AT_ONCE)
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
                explain(f"{self._origin.url} has no shard {name}.", mend="make the plan anew")
            )
        source = f"{self._origin.folder}/{name} in {self._origin.store}"
        with explained(Path(self._origin.held_at)):
            self._shelf.bring(
                one, lambda: self._read(one, source), source, is_optional=is_optional
            )  # fmt: skip

    def _read(self, one: ReleasedFile, source: str) -> Iterator[bytes]:
        with self._lock:
            if self._store is None:
                self._store = PatientStore(open_store(self._origin.store))
        try:
            yield from self._store.read(f"{self._origin.folder}/{one.name}", 0, one.bytes)
        except NotInStoreError as error:
            raise damaged(source, "it is not there") from error

    def _forked(self) -> None:
        if self._process != os.getpid():
            self._begin()  # its locks and connections may be in use by threads that are not here


def _shards_of(version_dir: str, spare: int) -> Shards:
    return Shards(AttachedOrigin(Path(version_dir)), spare)
