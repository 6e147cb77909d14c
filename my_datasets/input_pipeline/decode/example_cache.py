"""Keeps decoded examples for later epochs, in memory or on disk."""

import contextlib
import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from my_datasets.core.arrays import Array
from my_datasets.core.json_types import Json
from my_datasets.errors import PlanError
from my_datasets.input_pipeline.decode import images, pytree
from my_datasets.input_pipeline.decode.images import aligned
from my_datasets.input_pipeline.decode.pytree import Column, Columns, Leaves, Ragged, Tree, joined
from my_datasets.input_pipeline.order.permutation import Places
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Cache, Decode, Read
from my_datasets.input_pipeline.read import prepared
from my_datasets.input_pipeline.read.source import IndexedExamples
from my_datasets.input_pipeline.stopwatch import timed

_DESCRIPTION = "cache.json"


class _Store(Protocol):
    """The values of one column."""

    def put(self, numbers: Places, values: Any) -> None: ...

    def get(self, numbers: Places, *, as_floats: bool) -> Column: ...


class ExampleCache:
    """Examples that are decoded once."""

    def __init__(
        self, source: IndexedExamples, directory: Path | None = None, *, gives_floats: bool = False
    ) -> None:
        """Prepares an empty cache, or continues one on disk; without a directory, in memory.

        Images are kept as they are; with `gives_floats`, they are given as floats from 0 to 1.
        """
        self._size = size = len(source)
        self._source = source
        self._directory = directory
        self._is_scaled = [
            gives_floats and leaf.form == "image" for leaf in pytree.columns_of(source.tree)
        ]
        self._lock = threading.Lock()
        self._tree: Tree[None] | None = None
        self._stores: list[_Store] = []
        self._has = (
            np.zeros(size, np.bool_) if directory is None
            else _mapped(directory / "has.npy", (size,), np.dtype(np.bool_))
        )  # fmt: skip

    @property
    def tree(self) -> Leaves:
        """The leaves of an example, nested like its columns."""
        scaled = iter(self._is_scaled)
        return pytree.map_columns(
            lambda leaf: images.float_leaf(leaf) if next(scaled) else leaf, self._source.tree
        )

    @property
    def skipped(self) -> int:
        """The number of distinct examples skipped so far."""
        return self._source.skipped

    def __len__(self) -> int:
        return self._size

    def columns(self, numbers: Places, epoch: int) -> Columns:
        """Returns the columns of the examples with these numbers; decodes those it lacks."""
        with timed("cache"):
            return self._found(numbers, epoch)

    def _found(self, numbers: Places, epoch: int) -> Columns:
        missing = np.unique(numbers[~self._has[numbers]])
        if self._tree is None and not len(missing):
            missing = numbers[:1]  # the structure is not known from the files alone
        if len(missing):
            made = self._source.columns(missing, epoch)
            self._prepare(made)
            for store, column in zip(self._stores, pytree.columns_of(made), strict=True):
                store.put(missing, column)
            # After the values, so that a killed process leaves no partial ones.
            self._has[missing] = True
        stores = zip(self._stores, self._is_scaled, strict=True)
        return pytree.rebuilt(
            self._tree, [store.get(numbers, as_floats=is_scaled) for store, is_scaled in stores]
        )

    def _prepare(self, made: Columns) -> None:
        with self._lock:
            if self._tree is None:
                columns = pytree.columns_of(made)
                self._stores = [self._store(i, column) for i, column in enumerate(columns)]
                self._tree = pytree.map_columns(lambda _: None, made)

    def _store(self, number: int, column: Column) -> _Store:
        if isinstance(column, Ragged) or column.dtype == object:
            if self._directory is not None:
                raise PlanError(
                    "Texts, lists and images of different sizes cannot be cached on disk.",
                    fix="use cache='memory', or image_size=(...) and columns=[...]",
                )
            return _Objects(self._size)
        shape = (self._size, *column.shape[1:])
        if self._directory is None:
            return _Arrays(np.empty(shape, column.dtype))
        return _Arrays(_mapped(self._directory / f"{number}.npy", shape, column.dtype))


class _Arrays:
    """Values of one shape and type."""

    def __init__(self, values: Array) -> None:
        self._values = values

    def put(self, numbers: Places, values: Array) -> None:
        self._values[numbers] = values

    def get(self, numbers: Places, *, as_floats: bool) -> Column:
        n, shape = len(numbers), self._values.shape[1:]
        if not as_floats:
            return self._take(numbers, aligned((n, *shape), self._values.dtype))
        found = aligned((n, *shape), np.float32)
        for part, pixels in images.pixel_runs(n, shape, self._values.dtype):
            chosen = numbers[part]
            if len(chosen) == 1:
                some = self._values[chosen[0] : chosen[0] + 1]  # a view, without a copy
            else:
                some = self._take(chosen, pixels)
            images.scale(some, found[part])
        return found

    def _take(self, numbers: Places, out: Array) -> Array:
        # All numbers are valid; the default mode would check them, and copy for that.
        return np.take(self._values, numbers, axis=0, out=out, mode="clip")


class _Objects:
    """Texts, images of different sizes, lists."""

    def __init__(self, size: int) -> None:
        self._values = np.empty(size, object)
        self._kind: Ragged | None = None

    def put(self, numbers: Places, values: Column) -> None:
        if not isinstance(values, Ragged):
            for number, value in zip(numbers.tolist(), values, strict=True):
                self._values[number] = value
            return
        self._kind = values
        # A copy of each: a view would keep all examples of the batch in memory.
        for i, number in enumerate(numbers.tolist()):
            row = values.take(np.array([i]))
            self._values[number] = Ragged(row.values, row.lengths)

    def get(self, numbers: Places, *, as_floats: bool) -> Column:
        found = self._values_of(numbers)
        return images.as_floats(found) if as_floats else found

    def _values_of(self, numbers: Places) -> Column:
        if self._kind is None:
            found: Array = self._values[numbers]
            is_list = len(found) and isinstance(found[0], np.ndarray) and found[0].dtype == object
            return np.stack(list(found)) if is_list else found
        none = Ragged(self._kind.values[:0], tuple(one[:0] for one in self._kind.lengths))
        return joined([none, *(self._values[number] for number in numbers.tolist())])


def open_cache(cache: Cache, plan: Plan, source: IndexedExamples) -> ExampleCache:
    """Opens the cache of a plan, and creates its directory if needed.

    Raises:
      PlanError: The directory holds the examples of another plan.
    """
    read, decode = plan.the(Read), plan.the(Decode)
    gives_floats = decode.image_dtype is not None
    if cache.directory is None:
        return ExampleCache(source, gives_floats=gives_floats)
    described = {
        "dataset": read.dataset, "content": read.content, "split": read.split,
        "columns": decode.columns, "as_supervised": decode.as_supervised,
        "image_size": decode.image_size, "crop": decode.crop, "undecodable": decode.undecodable,
        "modified": prepared.find(read.path, shards_dir=read.shards_dir).modified,
        # Older directories have no such entry.
        **({} if decode.missing == "tfds" else {"missing": repr(decode.missing)}),
    }  # fmt: skip
    text = json.dumps(described, sort_keys=True)
    directory = Path(cache.directory)
    directory.mkdir(parents=True, exist_ok=True)
    description = directory / _DESCRIPTION
    if not description.exists():
        with _created_once(description) as partial:
            partial.write_text(text, "utf-8")
    found = description.read_text("utf-8")
    if found != text:
        raise PlanError(
            f"{directory} is the cache of another plan.",
            f"Expected: {_differences(json.loads(text), json.loads(found))}",
            f"Found: {_differences(json.loads(found), json.loads(text))}",
            fix="give another cache_dir, or delete that one",
        )
    return ExampleCache(source, directory, gives_floats=gives_floats)


def _differences(one: Mapping[str, Json], other: Mapping[str, Json]) -> str:
    return ", ".join(f"{name}={one[name]!r}" for name in one if one[name] != other.get(name))


def _mapped(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Maps an array in a file, zeros if it is new; several processes may share it."""
    if not path.exists():
        with _created_once(path) as partial:
            np.lib.format.open_memmap(partial, "w+", dtype, shape).flush()
    return np.lib.format.open_memmap(path, "r+")


@contextlib.contextmanager
def _created_once(path: Path) -> Iterator[Path]:
    """Yields a file to write, which is renamed to the path unless another process was first."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    try:
        yield partial
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
    finally:
        partial.unlink(missing_ok=True)
