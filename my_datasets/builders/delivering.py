"""Versions that are made in an object store: whole there, or not to be seen."""

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from my_datasets.builders import refusals, reproducing, staleness
from my_datasets.builders.on_beam import Where
from my_datasets.building import staging, storage
from my_datasets.building.engines import shard_files
from my_datasets.building.engines.beam.bucket import Bucket
from my_datasets.building.options import BuildOptions
from my_datasets.building.progress import Meter, log_progress
from my_datasets.core import hashes, side_by_side
from my_datasets.core.content import ShardContent
from my_datasets.core.layout import METADATA_FILES
from my_datasets.core.manifest import Manifest
from my_datasets.errors import (
    AlreadyInStoreError,
    BuildInterruptedError,
    ChangedInStoreError,
    DataDirError,
    NotInStoreError,
    StaleDataError,
    explain,
)
from my_datasets.stores import lease
from my_datasets.stores.lease import Lease
from my_datasets.stores.opening import open_store
from my_datasets.stores.patience import PatientStore
from my_datasets.stores.store import MARK, Stored

if TYPE_CHECKING:
    from my_datasets.builders.base import Builder

_LOGGER = logging.getLogger(__name__)

# Files that go at the same time.
_AT_ONCE = 8
# TFDS's note beside the configs of a dataset, of which one is meant if none is named.
_DEFAULT_CONFIG = ".config/metadata.json"


def scratch_of(url: str) -> Path:
    """Returns where what is made in an object store is prepared: downloads, unfinished work.

    Args:
      url: The data directory there.
    """
    name = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]
    return Path.home() / ".cache" / "my_datasets" / "builds" / name


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

    @property
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
                    mend="build into another folder, then publish the version from there",
                )
            )

    @contextmanager
    def held(self, here: Path) -> Iterator[Lease]:
        """Holds the right to build the version, which only one process on all machines has."""
        with lease.held(self._store, self._beside("lock"), os.fspath(here)) as found:
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
        for name, size in zip(rest, side_by_side.results(put, rest, _AT_ONCE), strict=True):
            report(name, size)
        self._check_whole(shards, names, there)
        check()
        self._tidy(shards, names, there)
        self._put_default_config(store, version_dir)
        for name in sorted(METADATA_FILES):
            report(name, put(name))

    def _put(self, store: PatientStore, path: str, source: Path) -> None:
        sha256 = hashes.of_file(source)
        try:
            store.create(path, source, sha256)
        except AlreadyInStoreError:
            if store.stat(path).sha256 != sha256:
                # Of a build that did not come to its end; nobody has seen it as part of a version.
                store.delete(path)
                store.create(path, source, sha256)

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
                    mend="see that nothing else writes there, then build with --restart",
                )
            )

    def _tidy(self, shards: Iterable[str], names: set[str], there: Iterable[str]) -> None:
        """Removes what builds that did not come to their end have left in the version's folder."""
        known = names | {path.name for name in shards for path in shard_files.beside(Path(name))}
        for name in sorted(set(there) - known):
            _LOGGER.warning("Removing %s/%s, left behind by an interrupted build.", self, name)
            self._store.delete(f"{self.folder}/{name}")

    def _put_default_config(self, store: PatientStore, version_dir: Path) -> None:
        source = version_dir.parent.parent / _DEFAULT_CONFIG
        if self.folder.count("/") == 1 or not source.is_file():
            return
        path, wanted = f"{self.folder.partition('/')[0]}/{_DEFAULT_CONFIG}", source.read_bytes()
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


def destination_of(builder: "Builder", url: str) -> Destination:
    """Returns where a builder's version comes to lie.

    Args:
      builder: The builder.
      url: The data directory there.
    """
    parts = (builder.name, builder.builder_config_name, str(builder.version))
    return Destination(url, "/".join(filter(None, parts)))


def build(builder: "Builder", url: str, options: dict[str, Any], how: BuildOptions) -> None:
    """Builds a version in an object store, if it is not there yet.

    Nobody finds it before all of it is there. Interrupted at any instant, the next call goes on.

    Args:
      builder: The builder; its `info` tells of the version in the end.
      url: The data directory there.
      options: TFDS's options of `download_and_prepare`.
      how: Ours.

    Raises:
      OverwriteError: It is there, and is to be overwritten.
      MyDatasetsError: As `Builder.download_and_prepare`.
    """
    destination = destination_of(builder, url)
    destination.check_usable()
    config = options["download_config"]
    scratch = scratch_of(url)
    version_dir = scratch / destination.folder
    with storage.explained(version_dir), _alone(version_dir), destination.held(scratch) as lease:
        if destination.is_prepared():
            if config.download_mode.overwrite_dataset:
                raise refusals.remote_overwrite(str(destination))
            with destination.metadata_in(version_dir):
                builder._anew(scratch).download_and_prepare(**options, build_options=how)
                builder.info.read_from_directory(version_dir)
        else:
            if version_dir.exists() and not _is_wanted(builder, scratch, version_dir, options, how):
                shutil.rmtree(version_dir)
            fresh = builder._anew(scratch)
            fresh._where = Where(destination.place, lease.check)
            fresh.download_and_prepare(**options, build_options=how)
            if config.max_examples_per_split == 0:
                shutil.rmtree(version_dir, ignore_errors=True)
                return  # only downloads were wanted
            _deliver(destination, version_dir, lease, how)
            builder.info.read_from_directory(version_dir)
        # Also what a build has left that was killed when the version was whole.
        destination.place.discard_work()
        staging.discard_work(version_dir)
        shutil.rmtree(version_dir, ignore_errors=True)


def _is_wanted(
    builder: "Builder",
    scratch: Path,
    version_dir: Path,
    options: dict[str, Any],
    how: BuildOptions,
) -> bool:
    """Returns whether a version that was built here, and not delivered, is what is wanted now."""
    config = options["download_config"]
    if config.download_mode.overwrite_dataset or not how.resume:
        return False
    made = Manifest.read(version_dir)
    said = made.provenance.get("reproduce") if made is not None else None
    if said != reproducing.command(builder, config, how, options["file_format"]):
        return False  # in another format, for one, or as other shards
    return not _is_stale(builder._anew(scratch), config, how)


@contextmanager
def _alone(version_dir: Path) -> Iterator[None]:
    version_dir.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(version_dir.parent / f".{version_dir.name}.delivering.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        _LOGGER.warning("Another process builds %s for a store; waiting for it.", version_dir)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _is_stale(builder: "Builder", config: Any, how: BuildOptions) -> bool:
    try:
        staleness.refuse(builder, config, how)
    except StaleDataError:
        return True
    return False


def _deliver(destination: Destination, version_dir: Path, lease: Lease, how: BuildOptions) -> None:
    meter = Meter(how.report or log_progress)
    size = sum(path.stat().st_size for path in version_dir.iterdir())
    meter.begin("delivering", expected_bytes=size)
    lease.check()
    destination.deliver(version_dir, lease.check, lambda name, size: meter.add(name, 0, size))
