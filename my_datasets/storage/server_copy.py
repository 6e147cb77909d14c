"""Moves folders in stores that cannot rename files, by copying within the store."""

from collections.abc import Callable, Iterable, Sequence

from my_datasets.core import processes
from my_datasets.errors import NotInStoreError
from my_datasets.storage.store import Store

_AT_ONCE = 16


def move(
    store: Store, copy: Callable[[str, str], None], source: str, target: str, last: Sequence[str]
) -> None:
    """Moves the files of a folder, as `Store.move` says.

    Args:
      store: The store.
      copy: Copies a file unless the target exists; raises `NotInStoreError` if the source does not.
      source: The folder.
      target: Where to.
      last: Names of the files to move last, in that order.
    """
    names = {one.path.rpartition("/")[2] for one in store.list(source)}
    existing = {one.path.rpartition("/")[2] for one in store.list(target)}

    def copied(name: str) -> None:
        try:
            copy(f"{source}/{name}", f"{target}/{name}")
        except NotInStoreError:
            store.stat(f"{target}/{name}")  # another process moved it there in the meantime

    left = names - existing
    _do(copied, sorted(left - set(last)))
    for name in last:
        if name in left:
            copied(name)
    _do(lambda name: store.delete(f"{source}/{name}"), sorted(names))


def _do(work: Callable[[str], None], names: Iterable[str]) -> None:
    for _ in processes.ordered_results(work, names, _AT_ONCE):
        pass
