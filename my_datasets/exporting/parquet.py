"""`export`: writes the examples of a version as Parquet files.

The target directory appears whole, and replaces nothing.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from my_datasets.building import staging
from my_datasets.core.json_types import JsonObject
from my_datasets.core.progress import OnProgress, Progress, ignore
from my_datasets.errors import (
    ExampleError,
    FeatureError,
    LostExamplesError,
    OverwriteError,
    SplitNotFoundError,
    missing_shard,
)
from my_datasets.exporting.arrow import Columns
from my_datasets.exporting.version_summary import require_own_metadata
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.decoder import FeatureMismatchError
from my_datasets.input_pipeline.read.prepared import Prepared
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.records.random_access import RecordBatch
from my_datasets.storage import addresses, regular_files
from my_datasets.storage.disk_space import explained

# Marks a directory as an export, which may be replaced.
MARKER = "my-datasets-export.json"

_MOST_ROWS = 8192
_CHUNK_BYTES = 16 << 20
_FILE_BYTES = 500 << 20


@contextlib.contextmanager
def staged(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yields a temporary directory that becomes `target`, or is deleted if the block raises.

    Raises:
      OverwriteError: The target was created in the meantime; see `check`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with staging.beside(target) as directory:
        yield directory
        (directory / MARKER).write_text('{"format": 1}\n', "utf-8")
        # Something else may have been created in the meantime.
        check_target(target, overwrite=overwrite)
        if target.exists():
            staging.swap(directory, target)
        else:
            directory.rename(target)


def check_target(target: Path, *, overwrite: bool) -> None:
    """Checks that an export may be written to `target`.

    Raises:
      OverwriteError: It holds something else, or an export that must not be replaced.
    """
    is_empty = target.is_dir() and not any(target.iterdir())
    if is_empty or not os.path.lexists(target):
        return
    is_ours = (target / MARKER).is_file()
    if not (is_ours and overwrite):
        raise OverwriteError(
            f"{target} already exists" + (", from an earlier export." if is_ours else "."),
            fix="add --overwrite, or name another directory"
            if is_ours
            else "name a directory that does not exist",
        )


@dataclass(frozen=True)
class ExportedFile:
    """A Parquet file; `name` is its path in the export."""

    name: str
    split: str
    examples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Exported:
    """A finished export: the version's full name, the directory, and its Parquet files."""

    name: str
    path: Path
    files: tuple[ExportedFile, ...]

    def to_json(self) -> dict[str, object]:
        """Returns the export as JSON."""
        return {"name": self.name, "path": str(self.path), "files": [vars(f) for f in self.files]}


def export(
    prepared: Prepared,
    directory: str | os.PathLike[str],
    *,
    splits: Collection[str] | None = None,
    binary: Collection[str] = (),
    file_bytes: int = _FILE_BYTES,
    overwrite: bool = False,
    complete: Callable[[Path, Sequence[ExportedFile]], None] = lambda *_: None,
    report: OnProgress = ignore,
) -> Exported:
    """Writes the examples of a version as Parquet files, keeping their order.

    Needs a few megabytes of memory. The directory becomes visible when it is complete.

    Args:
      prepared: The version.
      directory: The output directory.
      splits: Only these splits; None for all.
      binary: Features whose bytes are not text.
      file_bytes: The approximate maximum size of a file.
      overwrite: Replace an earlier export.
      complete: Called with the directory and its files before it becomes visible, to add files.
      report: Called with each split and its examples so far.

    Returns:
      The export.

    Raises:
      SplitNotFoundError: A split does not exist.
      IncompleteVersionError: A metadata file is a link that leads out of the directory.
      FeatureError: A feature does not exist, only TFDS can read it, or a text is not UTF-8.
      ExampleError: An example does not match its features.
      CorruptShardError: A shard is damaged.
      OverwriteError: The directory holds something else.
      DiskFullError: The disk is full.
    """
    # Follows a link, which may lead to a larger disk.
    target = Path(os.path.realpath(addresses.local_path(directory, "The directory")))
    check_target(target, overwrite=overwrite)
    require_own_metadata(prepared.metadata)
    wanted = _chosen_splits(prepared, splits)
    columns = Columns(prepared.schema.tree, _binary(prepared, binary))
    files: list[ExportedFile] = []
    with explained(target), staged(target, overwrite=overwrite) as half_made:
        (half_made / "data").mkdir()
        for split in wanted:
            files += _Split(prepared, split, columns, file_bytes, report).write(half_made)
        complete(half_made, files)
    return Exported(prepared.name, target, tuple(files))


class _Split:
    """Writes one split."""

    def __init__(
        self, prepared: Prepared, split: str, columns: Columns, file_bytes: int,
        report: OnProgress,
    ) -> None:  # fmt: skip
        self._split = split
        self._records = prepared.records(split)
        self._columns = columns
        self._file_bytes = file_bytes
        self._report = report
        size = 0
        for one in prepared.shards[split]:
            try:
                size += one.path.stat().st_size
            except FileNotFoundError:
                raise missing_shard(one.path) from None
        each = max(1, size // max(1, len(self._records)))
        self._rows = int(np.clip(min(_CHUNK_BYTES, file_bytes) // each, 1, _MOST_ROWS))

    def write(self, directory: Path) -> list[ExportedFile]:
        """Writes the split; returns its files."""
        written: list[tuple[Path, int]] = []
        total, at = len(self._records), 0
        while at < total or not written:
            path = directory / "data" / f"{self._split}-{len(written):05}.partial"
            end = self._write_file(path, at)
            written.append((path, end - at))
            at = end
        if sum(count for _, count in written) != total:
            raise LostExamplesError(
                f"{self._split} has {total:,} examples, but a different number was written.",
                fix="run the same again; if it stays, please report it",
            )
        return [
            self._finished(path, f"{i:05}-of-{len(written):05}", count)
            for i, (path, count) in enumerate(written)
        ]

    def _write_file(self, path: Path, begin: int) -> int:
        """Writes a file; returns the end of its examples."""
        total, at = len(self._records), begin
        with (
            path.open("wb") as file,
            pq.ParquetWriter(file, self._columns.schema, compression="zstd") as writer,
        ):
            while at < total and (at == begin or file.tell() < self._file_bytes):
                end = min(at + self._rows, total)
                writer.write_table(self._table(at, end))
                at = end
                self._report(Progress(self._split, at, total))
        with path.open("rb") as written:
            os.fsync(written.fileno())
        return at

    def _table(self, begin: int, end: int) -> pa.Table:
        batch = self._records.read(np.arange(begin, end))
        try:
            return self._columns.table(batch)
        except FeatureMismatchError as error:
            place = self._records.place(begin + error.rows[0])
            raise ExampleError(
                f"The feature {error.feature!r} of {place} cannot be written.",
                f"Expected: {error.expected}",
                f"Found: {error.found}",
                fix="run my-datasets verify --deep, and rebuild the version or pull it again",
            ) from error

    def _finished(self, path: Path, number: str, count: int) -> ExportedFile:
        name = f"{self._split}-{number}.parquet"
        final = path.replace(path.with_name(name))
        return ExportedFile(
            f"data/{name}", self._split, count, final.stat().st_size, regular_files.sha256_of(final)
        )


def _chosen_splits(prepared: Prepared, splits: Collection[str] | None) -> list[str]:
    missing = sorted(set(splits or ()) - set(prepared.shards))
    if missing:
        raise SplitNotFoundError(
            f"{prepared.name} has no split {', '.join(missing)}.",
            f"Its splits: {', '.join(prepared.shards)}",
            fix="choose among those",
        )
    found = [name for name in prepared.shards if splits is None or name in splits]
    if not found:
        raise SplitNotFoundError(
            f"{prepared.name} has no splits: there is nothing to export.",
            fix=f"run my-datasets verify {prepared.path}",
        )
    return found


def _binary(prepared: Prepared, named: Collection[str]) -> frozenset[str]:
    """Returns the features whose bytes are not text: the named ones and those in the manifest."""
    leaves = _bytes_of(prepared.schema.tree)
    unknown = sorted(set(named) - leaves)
    if unknown:
        raise FeatureError(
            f"{prepared.name} has no text or bytes feature {', '.join(unknown)}.",
            f"Its text and bytes features: {', '.join(sorted(leaves)) or 'none'}",
            fix="choose among those",
        )
    return frozenset(named) | _not_text(prepared.metadata.manifest, leaves)


def _bytes_of(tree: Any) -> frozenset[str]:
    return frozenset(leaf.name for leaf in pytree.columns_of(tree) if leaf.form == "bytes")


def _not_text(manifest: Manifest | None, leaves: frozenset[str]) -> frozenset[str]:
    """Returns the features whose bytes are not text according to the manifest."""
    statistics: JsonObject = manifest.statistics if manifest else {}
    return leaves & {
        name
        for split in statistics.values()
        for name, one in split["features"].items()
        if one.get("not_text")
    }


def of_records(version_dir: Path, records: RecordBatch, most_bytes: int) -> bytes | None:
    """Converts records of a version to a Parquet file; None if they exceed `most_bytes`.

    Raises:
      FeatureError: Only TFDS can read a feature, or a text is not UTF-8.
      FeatureMismatchError: An example does not match its features.
    """
    metadata = VersionMetadata(version_dir)
    tree = metadata.tree
    table = Columns(tree, _not_text(metadata.manifest, _bytes_of(tree))).table(records)
    if table.nbytes > most_bytes:
        return None
    file = pa.BufferOutputStream()
    pq.write_table(table, file, compression="zstd")
    found: bytes = file.getvalue().to_pybytes()
    return found
