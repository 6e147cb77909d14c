"""Builds versions in an object store, where they become visible only once they are complete."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from my_datasets.builders import rebuild_command, refusals
from my_datasets.builders.fingerprint import staleness
from my_datasets.builders.on_beam import Where
from my_datasets.builders.remote import remote_target
from my_datasets.builders.remote.remote_target import Destination
from my_datasets.building import disk_errors, staging
from my_datasets.building.options import BuildOptions
from my_datasets.building.progress import Meter, log_progress
from my_datasets.core.logs import get_logger
from my_datasets.errors import StaleDataError
from my_datasets.metadata.manifest import Manifest
from my_datasets.storage.lease import Lease
from my_datasets.storage.user_folders import cache_folder

if TYPE_CHECKING:
    from my_datasets.builders.base import Builder

_LOGGER = get_logger(__name__)


def scratch_of(url: str) -> Path:
    """Returns the local scratch directory of a remote build, for downloads and unfinished work.

    Args:
      url: The data directory in the object store.
    """
    name = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]
    return cache_folder("builds", name)


def build(builder: "Builder", url: str, options: dict[str, Any], how: BuildOptions) -> None:
    """Builds a version in an object store, if it does not exist there.

    The version becomes visible only once all of it is uploaded. An interrupted build is resumed by
    the next call.

    Args:
      builder: The builder; its `info` describes the version afterwards.
      url: The data directory in the object store.
      options: TFDS's options of `download_and_prepare`.
      how: This package's options.

    Raises:
      OverwriteError: The version exists and should be overwritten.
      MyDatasetsError: As `Builder.download_and_prepare` raises.
    """
    destination = remote_target.destination_of(builder, url)
    destination.check_usable()
    config = options["download_config"]
    scratch = scratch_of(url)
    version_dir = scratch / destination.folder
    with (
        disk_errors.explained(version_dir),
        _alone(version_dir),
        destination.held(scratch) as lease,
    ):
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
                return  # only the downloads were requested
            _deliver(destination, version_dir, lease, how)
            builder.info.read_from_directory(version_dir)
        # Also removes what is left by a build that was killed after the version was complete.
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
    """Returns whether a version built locally but not yet uploaded matches the current request."""
    config = options["download_config"]
    if config.download_mode.overwrite_dataset or not how.resume:
        return False
    made = Manifest.read(version_dir)
    said = made.provenance.get("reproduce") if made is not None else None
    if said != rebuild_command.command(builder, config, how, options["file_format"]):
        return False  # such as another format or number of shards
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
