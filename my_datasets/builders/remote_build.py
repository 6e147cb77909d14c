"""Builds versions in an object store, where they become visible only once they are complete.

A version is built on this machine, or by Beam's workers, and `Destination` uploads it.
"""

import functools
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import filelock
import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core import file_adapters
from tensorflow_datasets.core.utils import file_utils

from my_datasets.builders import build_job, code_fingerprint
from my_datasets.builders.on_beam import WorkspaceLocation
from my_datasets.building import staging
from my_datasets.building.engines import shard_writing
from my_datasets.building.engines.beam.workspace import BucketWorkspace
from my_datasets.building.options import BuildOptions
from my_datasets.building.progress import Meter, log_progress
from my_datasets.core import processes
from my_datasets.core.logs import get_logger
from my_datasets.errors import (
    BuildInterruptedError,
    DataDirError,
    NotInStoreError,
    OverwriteError,
    StaleDataError,
)
from my_datasets.metadata.content import ShardContent
from my_datasets.metadata.layout import DEFAULT_CONFIG, METADATA_FILES
from my_datasets.metadata.manifest import Manifest
from my_datasets.storage import disk_space, regular_files
from my_datasets.storage.backends import open_store
from my_datasets.storage.lease import Lease, hold
from my_datasets.storage.retry import RetryingStore, compare_and_swap, put
from my_datasets.storage.store import MARK, StoredFile
from my_datasets.storage.user_folders import cache_folder

if TYPE_CHECKING:
    from my_datasets.builders.base import Builder

_LOGGER = get_logger(__name__)

# Files that are uploaded concurrently.
_AT_ONCE = 8


@dataclass(frozen=True)
class Destination:
    """The destination of a version."""

    url: str  # the data directory: `s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`
    folder: str  # the version's folder in it: `name/[config/]version`

    def __str__(self) -> str:
        return f"{self.url.rstrip('/')}/{self.folder}"

    @functools.cached_property
    def _store(self) -> RetryingStore:
        return RetryingStore(open_store(self.url))

    @property
    def place(self) -> BucketWorkspace:
        """Where workers and the building process exchange files: next to the version."""
        return BucketWorkspace(self.url, self._beside("work"), self.folder)

    def _beside(self, what: str) -> str:
        parent, _, version = self.folder.rpartition("/")
        return f"{parent}/.{version}.{what}"

    def is_prepared(self) -> bool:
        """Returns whether the version exists in the store."""
        try:
            for name in METADATA_FILES:
                self._store.stat(f"{self.folder}/{name}")
        except NotInStoreError:
            return False
        return True

    def check_usable(self) -> None:
        """Raises `DataDirError` if the store contains releases."""
        with suppress(NotInStoreError):
            self._store.stat(MARK)
            raise DataDirError(
                f"{self.url} contains releases, which only publishing may change.",
                fix="build into another folder, then publish the version from there",
            )

    def lease(self, scratch: Path) -> AbstractContextManager[Lease]:
        """Holds the lease for building the version; only one process on any machine can have it."""
        return hold(self._store, self._beside("lock"), _mark_of(scratch))

    @contextmanager
    def metadata_in(self, version_dir: Path) -> Iterator[None]:
        """Downloads the version's metadata, without its shards, for the duration of the context."""
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
            # Otherwise it could be mistaken for a version built locally.
            shutil.rmtree(version_dir, ignore_errors=True)

    def deliver(
        self, version_dir: Path, check: Callable[[], None], report: Callable[[str, int], None]
    ) -> None:
        """Uploads missing files; the metadata that makes the version visible comes last.

        `check` is called before each step and raises if the step must not be taken; `report` is
        called with the name and the size in bytes of each file.

        Raises:
          BuildInterruptedError: Shards are missing at the destination.
        """
        stored = {
            one.path.removeprefix(f"{self.folder}/"): one for one in self._store.list(self.folder)
        }
        names = {path.name for path in version_dir.iterdir()}
        shards = _shards(version_dir)

        def upload(name: str) -> int:
            path = version_dir / name
            check()  # without the lease, it could overwrite another process's file
            self._put(self._store, f"{self.folder}/{name}", path)
            return path.stat().st_size

        if names & shards.keys():
            # The next Beam build would mistake these for shards that it uploaded itself.
            self.place.discard_work()
        rest = sorted(names - set(METADATA_FILES))
        for name, size in zip(rest, processes.ordered_results(upload, rest, _AT_ONCE), strict=True):
            report(name, size)
        self._check_whole(shards, names, stored)
        check()
        self._remove_leftovers(shards, names, stored)
        self._put_default_config(version_dir)
        for name in sorted(METADATA_FILES):
            report(name, upload(name))

    def _put(self, store: RetryingStore, path: str, source: Path) -> None:
        # A different file there is left by an unfinished build: it was never visible.
        put(store, path, source, regular_files.sha256_of(source))

    def _check_whole(
        self, shards: Mapping[str, ShardContent], names: set[str], stored: Mapping[str, StoredFile]
    ) -> None:
        missing = sorted(
            name
            for name, shard in shards.items()
            if name not in names and (name not in stored or stored[name].bytes != shard.bytes)
        )
        if missing:
            raise BuildInterruptedError(
                f"{len(missing)} of {len(shards)} shards in {self} are missing or have changed, "
                f"such as {missing[0]}.",
                fix="make sure that nothing else writes there, then build with --restart",
            )

    def _remove_leftovers(
        self, shards: Iterable[str], names: set[str], stored: Iterable[str]
    ) -> None:
        """Removes files in the version's folder that unfinished builds left behind."""
        known = names | {path.name for name in shards for path in shard_writing.beside(Path(name))}
        for name in sorted(set(stored) - known):
            _LOGGER.warning("Removing %s/%s, left behind by an interrupted build.", self, name)
            self._store.delete(f"{self.folder}/{name}")

    def _put_default_config(self, version_dir: Path) -> None:
        source = version_dir.parent.parent / DEFAULT_CONFIG
        if self.folder.count("/") == 1 or not source.is_file():
            return
        path, content = f"{self.folder.partition('/')[0]}/{DEFAULT_CONFIG}", source.read_bytes()

        def read() -> tuple[bytes, str | None]:
            try:
                return self._store.state(path, 1 << 16)
            except NotInStoreError:
                return b"", None

        # A build of another config may change it at the same time.
        compare_and_swap(
            self._store,
            path,
            read,
            lambda data: data if data == content else content,
            lambda data: data,
        )


def _shards(version_dir: Path) -> dict[str, ShardContent]:
    manifest = Manifest.read(version_dir)
    splits = manifest.content.splits.values() if manifest and manifest.content else ()
    return {shard.name: shard for split in splits for shard in split.shards}


def _mark_of(scratch: Path) -> str:
    """Returns a random mark that identifies a scratch directory among those of all machines."""
    path, mark = scratch / ".mark", secrets.token_hex(8)
    if not path.exists():
        partial = scratch / f".mark-{mark}"
        partial.write_text(mark)
        with suppress(FileExistsError):  # another process was faster
            os.link(partial, path)
        partial.unlink()
    return path.read_text()


def destination_of(builder: "Builder", url: str) -> Destination:
    """Returns the destination of a builder's version."""
    parts = (builder.name, builder.builder_config_name, str(builder.version))
    return Destination(url, "/".join(filter(None, parts)))


class PrepareOptions(TypedDict, total=False):
    """TFDS's arguments of `download_and_prepare`."""

    download_dir: epath.PathLike | None
    download_config: tfds.download.DownloadConfig
    file_format: str | file_adapters.FileFormat | None
    permissions: file_utils.Permissions


def scratch_of(url: str) -> Path:
    """Returns the local scratch directory of a remote build, for downloads and unfinished work."""
    name = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]
    return cache_folder("builds", name)


def build(builder: "Builder", url: str, options: PrepareOptions, how: BuildOptions) -> None:
    """Builds a version in an object store, if it does not exist there.

    The version becomes visible only once all of it is uploaded. An interrupted build is resumed by
    the next call. The builder's `info` describes the version afterwards.

    Raises:
      OverwriteError: The version exists and should be overwritten.
    """
    destination = destination_of(builder, url)
    destination.check_usable()
    config = options["download_config"]
    scratch = scratch_of(url)
    version_dir = scratch / destination.folder
    with (
        disk_space.explained(version_dir),
        _locked(version_dir),
        destination.lease(scratch) as lease,
    ):
        if destination.is_prepared():
            if config.download_mode.overwrite_dataset:
                raise OverwriteError(
                    f"{destination} cannot be overwritten in place.",
                    "A remote directory cannot be swapped in one step, and deleting it first could "
                    "lose it.",
                    fix="raise the dataset's VERSION, or build into an empty --data-dir",
                )
            with destination.metadata_in(version_dir):
                builder._anew(scratch).download_and_prepare(**options, build_options=how)
                builder.info.read_from_directory(version_dir)
        else:
            if version_dir.exists() and not _matches(builder, scratch, version_dir, options, how):
                shutil.rmtree(version_dir)
            fresh = builder._anew(scratch)
            fresh._workspace = WorkspaceLocation(destination.place, lease.check)
            fresh.download_and_prepare(**options, build_options=how)
            if config.max_examples_per_split == 0:
                shutil.rmtree(version_dir, ignore_errors=True)
                return  # only the downloads were requested
            _deliver(destination, version_dir, lease, how)
            builder.info.read_from_directory(version_dir)
        # Also removes what is left by a build that was killed after the version was complete.
        destination.place.discard_work()
        staging.discard_work(version_dir)
        shutil.rmtree(version_dir, ignore_errors=True)


def _matches(
    builder: "Builder", scratch: Path, version_dir: Path, options: PrepareOptions, how: BuildOptions
) -> bool:
    """Returns whether a version built locally but not yet uploaded matches the current request."""
    config = options["download_config"]
    if config.download_mode.overwrite_dataset or not how.resume:
        return False
    manifest = Manifest.read(version_dir)
    command = manifest.provenance.get("reproduce") if manifest is not None else None
    if command != build_job.rebuild_command(builder, config, how, options["file_format"]):
        return False  # such as another format or number of shards
    try:
        code_fingerprint.refuse_stale(builder._anew(scratch), config, how)
    except StaleDataError:
        return False
    return True


@contextmanager
def _locked(version_dir: Path) -> Iterator[None]:
    version_dir.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(version_dir.parent / f".{version_dir.name}.delivering.lock")
    try:
        acquired = lock.acquire(timeout=0)
    except filelock.Timeout:
        _LOGGER.warning("Another process is building %s for a store; waiting for it.", version_dir)
        acquired = lock.acquire()
    with acquired:
        yield


def _deliver(destination: Destination, version_dir: Path, lease: Lease, how: BuildOptions) -> None:
    meter = Meter(how.report or log_progress)
    size = sum(path.stat().st_size for path in version_dir.iterdir())
    meter.begin("delivering", expected_bytes=size)
    lease.check()
    destination.deliver(version_dir, lease.check, lambda name, size: meter.add(name, 0, size))
