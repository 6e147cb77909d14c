"""What stores in buckets have in common, whether in S3 or in Google's cloud."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from my_datasets.core import processes
from my_datasets.errors import NotInStoreError, StoreError

_AT_ONCE = 16
# Seconds: to connect, and to read.
TIMEOUT = (15.0, 60.0)
# The metadata of a file that has its SHA-256.
SHA256 = "sha256"
# The size of a part of a file that is sent or read in parts.
PART_BYTES = 16 << 20


class BucketStore:
    """A folder of a bucket, in which files cannot be renamed; see `Store`."""

    _scheme: ClassVar[str]
    is_writable = True

    def __init__(self, bucket: str, folder: str) -> None:
        self._bucket_name = bucket
        self._folder = folder.strip("/")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self._bucket_name}/{self._folder}".rstrip("/")

    def move(self, source: str, target: str, last: Sequence[str]) -> None:
        store: Any = self
        names = {one.path.rpartition("/")[2] for one in store.list(source)}
        existing = {one.path.rpartition("/")[2] for one in store.list(target)}

        def copy(name: str) -> None:
            try:
                self._copy(f"{source}/{name}", f"{target}/{name}")
            except NotInStoreError:
                store.stat(f"{target}/{name}")  # another process moved it there in the meantime

        left = names - existing
        _for_each(copy, left - set(last))
        for name in last:
            if name in left:
                copy(name)
        _for_each(lambda name: store.delete(f"{source}/{name}"), names)

    def _copy(self, source: str, target: str) -> None:
        """Copies a file within the bucket; it may leave a target that exists as it is.

        Raises:
          NotInStoreError: There is no such source.
        """
        raise NotImplementedError

    def _key(self, path: str) -> str:
        return "/".join(filter(None, (self._folder, path.strip("/"))))

    def _prefix(self, folder: str) -> str:
        return f"{self._key(folder)}/" if self._key(folder) else ""

    def _path(self, key: str) -> str:
        return key.removeprefix(f"{self._folder}/" if self._folder else "")

    def _no_bucket(self) -> StoreError:
        return StoreError(
            f"There is no bucket {self._bucket_name}.", fix="make it, or correct its name"
        )


def _for_each(work: Callable[[str], None], names: Iterable[str]) -> None:
    for _ in processes.ordered_results(work, sorted(names), _AT_ONCE):
        pass
