"""Fetches shards into a cache when they are needed, or before."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from my_datasets.core.processes import PerProcess
from my_datasets.errors import CorruptShardError, MyDatasetsError
from my_datasets.metadata import sidecars
from my_datasets.storage.disk_space import explained
from my_datasets.storage.shard_cache import RemoteFile, ShardCache
from my_datasets.storage.verified_files import verified_files

_Job = TypeVar("_Job")
# How many remote shards are shuffled together; and how many such windows are cached: the current
# one, the one before, which some threads may still read, and the next one.
WINDOW = 4
CACHED_WINDOWS = 3
# Shards fetched at the same time before they are needed: more than one connection gives.
_AT_ONCE = 4


class ShardProvider(Protocol):
    """The remote source of a version's shards; it can be sent to other processes."""

    @property
    def url(self) -> str:
        """The URL of the version's folder there, for display."""

    @property
    def address(self) -> str:
        """The address to find the version again: a URL, or a directory with its metadata."""

    @property
    def shards_dir(self) -> str:
        """The location of the shards while they are read."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of each file there, in bytes."""

    @property
    def modified(self) -> int:
        """The last modification time of any file, in ns since the epoch; 0 if they never change."""

    @property
    def files(self) -> Mapping[str, RemoteFile]:
        """The files that may be fetched, by name."""

    def beside(self, name: str) -> Iterable[str]:
        """Returns the names of files that are fetched together with a shard."""

    def read(self, name: str) -> Iterator[bytes]:
        """Yields the contents of a file, piece by piece."""

    def damaged(self, name: str, found: str) -> MyDatasetsError:
        """Returns the error for a file with other contents than expected."""

    def place(self, name: str, cached: Path) -> None:
        """Sees that readers find a cached file by its name in the version's directory."""

    def fetcher(self, names: Collection[str], max_cached_shards: int | None) -> "ShardFetcher":
        """Returns the object that fetches some of the shards.

        Args:
          names: The shards.
          max_cached_shards: How many of them must fit in the cache at a time; None for as many
            as fit.

        Raises:
          InvalidOptionError: They do not fit.
        """


class ShardFetcher:
    """Fetches shards of a provider into a cache; can be sent to other processes.

    Attributes:
      max_open: How many shards may stay open between reads; 0 if they must be closed for eviction.
      spare: How many more shards fit in the cache than were requested to fit.
    """

    def __init__(
        self, provider: ShardProvider, cache: ShardCache, *, max_open: int = 0, spare: int = 0
    ) -> None:
        self.max_open = max_open
        self.spare = spare
        self._provider = provider
        self._cache = cache
        self._pool = PerProcess[BackgroundPool[Path]]()

    def __call__(self, path: Path) -> None:
        """Fetches a shard that is about to be opened, unless it is already here.

        Raises:
          CorruptReleaseError, CorruptShardError: The store has another file than expected, or the
            shard's record index is another shard's.
          DiskFullError: The disk has no room for it.
          StoreError: The store cannot be read.
        """
        self._fetch(path.name)
        sha256 = self._provider.files[path.name].sha256
        # Other processes may have evicted it meanwhile: opening it fetches it again.
        with contextlib.suppress(FileNotFoundError):
            if sha256 is not None:
                sidecars.check_index(path, sha256, verified_files())

    def prefetch(self, paths: Iterable[Path]) -> None:
        """Starts fetching shards that will be needed, as far as the cache has room."""
        pool = self._pool.get(lambda: BackgroundPool(self.try_fetch, _AT_ONCE))
        for path in paths:
            pool.submit(path)

    def try_fetch(self, path: Path) -> None:
        """Fetches a shard if it fits in the cache; ignores errors, which opening it will raise."""
        with contextlib.suppress(Exception):
            self._fetch(path.name, is_optional=True)

    def _fetch(self, shard: str, *, is_optional: bool = False) -> None:
        provider = self._provider
        for name in (*provider.beside(shard), shard):
            remote = provider.files.get(name)
            if remote is None:
                raise CorruptShardError(
                    f"{provider.url} has no shard {name}.", fix="create the plan again"
                )
            with explained(self._cache.directory):
                path = self._cache.fetch(
                    remote, partial(provider.read, name), partial(provider.damaged, name),
                    is_optional=is_optional,
                )  # fmt: skip
            provider.place(name, path)


class BackgroundPool(Generic[_Job]):
    """Runs jobs in the order in which they are submitted, several at the same time.

    A process waits for the threads of `concurrent.futures`, and for their pending jobs, before it
    exits. These threads end with the process, and with this object.
    """

    def __init__(self, work: Callable[[_Job], None], threads: int) -> None:
        """Starts the threads.

        Args:
          work: A method that runs a job and never fails; its object may be deleted before this one.
          threads: The number of jobs to run at the same time.
        """
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        method = weakref.WeakMethod(work)
        for _ in range(threads):
            threading.Thread(
                target=_run_jobs, args=(self._jobs, method), name="my_datasets_shards", daemon=True
            ).start()
        weakref.finalize(self, _stop, self._jobs, threads)

    def submit(self, job: _Job) -> None:
        """Submits a job, to run when a thread is free."""
        self._jobs.put(job)


def _run_jobs(
    jobs: "SimpleQueue[_Job | None]", method: "weakref.WeakMethod[Callable[[_Job], None]]"
) -> None:
    while (job := jobs.get()) is not None:
        work = method()
        if work is None:
            return
        work(job)
        del work  # or the reference would be kept while the thread is idle


def _stop(jobs: "SimpleQueue[_Job | None]", threads: int) -> None:
    for _ in range(threads):
        jobs.put(None)
