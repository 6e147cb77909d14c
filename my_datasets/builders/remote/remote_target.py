"""Where a version that is made in an object store comes to lie, and how it gets there."""

import functools
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from my_datasets.building.engines import shard_files
from my_datasets.building.engines.beam.workspace.object_store import Bucket
from my_datasets.core import ordered_pool
from my_datasets.core.logs import get_logger
from my_datasets.errors import (
    BuildInterruptedError,
    ChangedInStoreError,
    DataDirError,
    NotInStoreError,
    explain,
)
from my_datasets.metadata.content import ShardContent
from my_datasets.metadata.layout import DEFAULT_CONFIG, METADATA_FILES
from my_datasets.metadata.manifest import Manifest
from my_datasets.storage import lease, regular_files, upsert
from my_datasets.storage.lease import Lease
from my_datasets.storage.opening import open_store
from my_datasets.storage.retry import PatientStore
from my_datasets.storage.store import MARK, Stored

if TYPE_CHECKING:
    from my_datasets.builders.base import Builder

_LOGGER = get_logger(__name__)

# Files that go at the same time.
_AT_ONCE = 8


@dataclass(frozen=True)
class Destination:
    """Where a version comes to lie.

    Attributes:
      url: The data directory: `s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`.
      folder: The version's in it: `name/[config/]version`.
    """

    url: str
    folder: str

    def __str__(self) -> str:
        return f"{self.url.rstrip('/')}/{self.folder}"

    @functools.cached_property
    def _store(self) -> PatientStore:
        return PatientStore(open_store(self.url))

    @property
    def place(self) -> Bucket:
        """Where workers and the building process meet: beside the version."""
        return Bucket(self.url, self._beside("work"), self.folder)

    def _beside(self, what: str) -> str:
        parent, _, version = self.folder.rpartition("/")
        return f"{parent}/.{version}.{what}"

    def is_prepared(self) -> bool:
        """Returns whether the version is there.

        Raises:
          StoreError: The store cannot be used.
        """
        try:
            for name in METADATA_FILES:
                self._store.stat(f"{self.folder}/{name}")
        except NotInStoreError:
            return False
        return True

    def check_usable(self) -> None:
        """Sees that versions may be built there.

        Raises:
          StoreError: The store cannot be used.
          DataDirError: It holds releases.
        """
        with suppress(NotInStoreError):
            self._store.stat(MARK)
            raise DataDirError(
                explain(
                    f"{self.url} holds releases, which are never changed but by publishing.",
                    fix="build into another folder, then publish the version from there",
                )
            )

    @contextmanager
    def held(self, here: Path) -> Iterator[Lease]:
        """Holds the right to build the version, which only one process on all machines has."""
        with lease.held(self._store, self._beside("lock"), _mark_of(here)) as found:
            yield found

    @contextmanager
    def metadata_in(self, version_dir: Path) -> Iterator[None]:
        """Gives a copy of what TFDS and this package say of the version, without its shards."""
        shutil.rmtree(version_dir, ignore_errors=True)
        version_dir.mkdir(parents=True)
        store = self._store
        try:
            for one in store.list(self.folder):
                name = one.path.rpartition("/")[2]
                if name.endswith((".json", ".txt")):
                    (version_dir / name).write_bytes(b"".join(store.read(one.path)))
            yield
        finally:
            # Nobody takes it for a version that was built here.
            shutil.rmtree(version_dir, ignore_errors=True)

    def deliver(
        self, version_dir: Path, check: Callable[[], None], report: Callable[[str, int], None]
    ) -> None:
        """Brings there what is not there yet; that by which it is found comes last.

        Args:
          version_dir: The version as it was built here: all of it, or without its shards.
          check: Called before each step: raises if it must not be done.
          report: Told the name and the bytes of each file.

        Raises:
          BuildInterruptedError: Shards are missing there.
          StoreError: The store cannot be used.
        """
        store = self._store
        there = {one.path.removeprefix(f"{self.folder}/"): one for one in store.list(self.folder)}
        names = {path.name for path in version_dir.iterdir()}
        shards = _shards(version_dir)

        def put(name: str) -> int:
            path = version_dir / name
            check()  # else it may be in the place of somebody else's
            self._put(store, f"{self.folder}/{name}", path)
            return path.stat().st_size

        if names & shards.keys():
            # The next build on Beam would take these for shards that it has handed over itself.
            self.place.discard_work()
        rest = sorted(names - set(METADATA_FILES))
        for name, size in zip(rest, ordered_pool.results(put, rest, _AT_ONCE), strict=True):
            report(name, size)
        self._check_whole(shards, names, there)
        check()
        self._tidy(shards, names, there)
        self._put_default_config(store, version_dir)
        for name in sorted(METADATA_FILES):
            report(name, put(name))

    def _put(self, store: PatientStore, path: str, source: Path) -> None:
        # What is there otherwise is of a build that did not come to its end: nobody has seen it.
        upsert.put(store, path, source, regular_files.sha256_of(source))

    def _check_whole(
        self, shards: Mapping[str, ShardContent], names: set[str], there: Mapping[str, Stored]
    ) -> None:
        missing = sorted(
            name
            for name, shard in shards.items()
            if name not in names and (name not in there or there[name].bytes != shard.bytes)
        )
        if missing:
            raise BuildInterruptedError(
                explain(
                    f"{len(missing)} of {len(shards)} shards are not in {self} as they were made, "
                    f"such as {missing[0]}.",
                    fix="see that nothing else writes there, then build with --restart",
                )
            )

    def _tidy(self, shards: Iterable[str], names: set[str], there: Iterable[str]) -> None:
        """Removes what builds that did not come to their end have left in the version's folder."""
        known = names | {path.name for name in shards for path in shard_files.beside(Path(name))}
        for name in sorted(set(there) - known):
            _LOGGER.warning("Removing %s/%s, left behind by an interrupted build.", self, name)
            self._store.delete(f"{self.folder}/{name}")

    def _put_default_config(self, store: PatientStore, version_dir: Path) -> None:
        source = version_dir.parent.parent / DEFAULT_CONFIG
        if self.folder.count("/") == 1 or not source.is_file():
            return
        path, wanted = f"{self.folder.partition('/')[0]}/{DEFAULT_CONFIG}", source.read_bytes()
        while True:
            try:
                data, tag = store.state(path, 1 << 16)
            except NotInStoreError:
                data, tag = b"", None
            if data == wanted:
                return
            with suppress(ChangedInStoreError):  # by a build of another config
                store.replace(path, wanted, tag)
                return


def _shards(version_dir: Path) -> dict[str, ShardContent]:
    made = Manifest.read(version_dir)
    splits = made.content.splits.values() if made is not None and made.content else ()
    return {shard.name: shard for split in splits for shard in split.shards}


def _mark_of(scratch: Path) -> str:
    """Returns what tells a scratch directory from those of all other machines."""
    path, mark = scratch / ".mark", secrets.token_hex(8)
    if not path.exists():
        partial = scratch / f".mark-{mark}"
        partial.write_text(mark)
        with suppress(FileExistsError):  # another process was first
            os.link(partial, path)
        partial.unlink()
    return path.read_text()


def destination_of(builder: "Builder", url: str) -> Destination:
    """Returns where a builder's version comes to lie.

    Args:
      builder: The builder.
      url: The data directory there.
    """
    parts = (builder.name, builder.builder_config_name, str(builder.version))
    return Destination(url, "/".join(filter(None, parts)))
