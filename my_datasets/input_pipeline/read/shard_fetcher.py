"""Fetches shards into a cache when they are needed, or before."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from my_datasets.building.disk_space import explained
from my_datasets.core.processes import PerProcess
from my_datasets.errors import CorruptShardError, MyDatasetsError
from my_datasets.metadata import sidecars
from my_datasets.storage.shard_cache import RemoteFile, ShardCache
from my_datasets.storage.verified_files import verified_files

_Job = TypeVar("_Job")
# Shards fetched at the same time before they are needed: more than one connection gives.
_AT_ONCE = 4


class ShardSource(Protocol):
    """Where shards come from; it can be sent to other processes."""

    @property
    def url(self) -> str:
        """The URL of the version's folder there, for display."""

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


class ShardFetcher:
    """Fetches shards of a source into a cache; can be sent to other processes.

    Attributes:
      max_open: How many shards may stay open between reads; 0 if they must be closed for eviction.
      spare: How many more shards fit in the cache than were requested to fit.
    """

    def __init__(
        self, source: ShardSource, cache: ShardCache, *, max_open: int = 0, spare: int = 0
    ) -> None:
        self.max_open = max_open
        self.spare = spare
        self._source = source
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
        sha256 = self._source.files[path.name].sha256
        # Other processes may have evicted it meanwhile: opening it fetches it again.
        with contextlib.suppress(FileNotFoundError):
            if sha256 is not None:
                sidecars.check_index(path, sha256, verified_files())

    def prefetch(self, paths: Iterable[Path]) -> None:
        """Starts fetching shards that will be needed, as far as the cache has room."""
        pool = self._pool.get(lambda: BackgroundPool(self.try_fetch, _AT_ONCE))
        for path in paths:
            pool.give(path)

    def try_fetch(self, path: Path) -> None:
        """Fetches a shard if it fits in the cache; ignores errors, which opening it will raise."""
        with contextlib.suppress(Exception):
            self._fetch(path.name, is_optional=True)

    def _fetch(self, shard: str, *, is_optional: bool = False) -> None:
        for name in (*self._source.beside(shard), shard):
            self._fetch_one(name, is_optional=is_optional)

    def _fetch_one(self, name: str, *, is_optional: bool) -> None:
        source = self._source
        wanted = source.files.get(name)
        if wanted is None:
            raise CorruptShardError(
                f"{source.url} has no shard {name}.", fix="create the plan again"
            )
        with explained(self._cache.directory):
            path = self._cache.fetch(
                wanted, lambda: source.read(name), lambda found: source.damaged(name, found),
                is_optional=is_optional,
            )  # fmt: skip
        source.place(name, path)


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
        doing = weakref.WeakMethod(work)
        for _ in range(threads):
            threading.Thread(
                target=_do, args=(self._jobs, doing), name="my_datasets_shards", daemon=True
            ).start()
        weakref.finalize(self, _end, self._jobs, threads)

    def give(self, job: _Job) -> None:
        """Submits a job, to run when a thread is free."""
        self._jobs.put(job)


def _do(
    jobs: "SimpleQueue[_Job | None]", doing: "weakref.WeakMethod[Callable[[_Job], None]]"
) -> None:
    while (job := jobs.get()) is not None:
        work = doing()
        if work is None:
            return
        work(job)
        del work  # or the reference would be kept while the thread is idle


def _end(jobs: "SimpleQueue[_Job | None]", threads: int) -> None:
    for _ in range(threads):
        jobs.put(None)
