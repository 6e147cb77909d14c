"""The values of a column, noted by the hashes by which rows are split, while shards are read."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.metadata.features import Leaf
from my_datasets.records.random_access import RecordBatch
from my_datasets.sources import splitting
from my_datasets.verification import observer
from my_datasets.verification.observer import Noted, Take

# A value that a shard has: the MD5 by which rows are split, where the value comes first, and how
# often. As many bytes as a hash of an example has, so that `core.hashes` takes pieces of them.
ROW = np.dtype([("md5", "S16"), ("first", ">i8"), ("count", ">i8")])


def why_not(leaf: Any) -> str | None:
    """Returns why the values of a feature are not those of the column; None if they are."""
    if leaf is None:
        return "it is not stored"
    if not isinstance(leaf, Leaf) or leaf.form == "image" or leaf.sequence or leaf.shape:
        return "it is stored as something else than single values"
    if leaf.form == "number" and np.dtype(leaf.dtype).kind == "f":
        return "it is stored as floating-point numbers, which are rounded"
    if leaf.is_optional and np.dtype(leaf.dtype).kind in "bu":
        return "values that are missing are stored as others that there are"
    return None


@dataclass(frozen=True)
class ColumnHashes:
    """Notes which values of a feature a shard has, as `ROW`s.

    Attributes:
      name: For files.
      leaf: The feature; at the top of the examples.
      salt: What the hashes are salted with.
    """

    name: str
    leaf: Leaf
    salt: str

    @contextlib.contextmanager
    def noting(self, target: Path) -> Iterator[Take]:
        """See `watching.Watch`."""
        parts: list[npt.NDArray[Any]] = []

        def take(values: Any) -> None:
            parts.append(hashes(self.salt, texts_of(self.leaf, values[self.leaf.name])))

        yield take
        found = np.concatenate([np.zeros(0, ROW["md5"]), *parts])
        keys, first, counts = np.unique(found, return_index=True, return_counts=True)
        rows = np.zeros(len(keys), ROW)
        rows["md5"], rows["first"], rows["count"] = keys, first, counts
        rows.tofile(target)

    def value(self, shards: Sequence[Noted], number: int) -> str:
        """Returns the value of an example, for a message.

        Args:
          shards: Those of its split.
          number: Of the example within the split.
        """
        shard, row = observer.place(shards, number)
        values = Decoder({self.leaf.name: self.leaf})(RecordBatch.of([shard.record(row)]))
        (text,) = texts_of(self.leaf, values[self.leaf.name]).to_pylist()
        is_text = self.leaf.form == "bytes" or self.leaf.labels
        return repr(text.decode("utf-8", "backslashreplace")) if is_text else str(text, "ascii")


def texts_of(leaf: Leaf, values: npt.NDArray[Any]) -> pa.LargeBinaryArray:
    """Returns values as the texts by which `sources.splitting` hashes those of their column.

    Args:
      leaf: Their feature.
      values: The values as they are decoded; shape [n].
    """
    if leaf.form == "bytes":
        return pa.array(values.tolist(), pa.large_binary())
    numbers = values.tolist()
    if leaf.labels:
        names = leaf.labels
        texts = [names[n] if 0 <= n < len(names) else str(n) for n in numbers]
    elif leaf.dtype == "bool":
        texts = ["true" if value else "false" for value in numbers]
    else:
        # What stands for a value that is missing: see `decoding`.
        missing = np.iinfo(leaf.dtype).min if leaf.is_optional else None
        texts = ["" if n == missing else str(n) for n in numbers]
    return pa.array(texts, pa.large_string()).cast(pa.large_binary())


def hashes(salt: str, texts: pa.LargeBinaryArray) -> npt.NDArray[np.bytes_]:
    """Returns the MD5 of salted texts, of which the upper half is their place; S16 of shape [n]."""
    found = np.zeros((len(texts), 2), ">u8")
    found[:, 0], found[:, 1] = splitting.salted(salt, texts)
    return found.view(ROW["md5"]).reshape(-1)
