"""`export`: the examples of a version as Parquet files that every tool for tables reads."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from my_datasets.building import staging
from my_datasets.building.disk_space import explained
from my_datasets.errors import (
    ExampleError,
    FeatureError,
    LostExamplesError,
    OverwriteError,
    SplitNotFoundError,
    explain,
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

# Says that a directory holds an export, which may be replaced.
MARKER = "my-datasets-export.json"


@contextlib.contextmanager
def staged(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yields a directory that is put into its place when all went well, and else is gone.

    Raises:
      OverwriteError: There is something else by now; see `check`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with staging.beside(target) as directory:
        yield directory
        (directory / MARKER).write_text('{"format": 1}\n', "utf-8")
        # Exports take long: what was put there in the meantime is not ours.
        check_target(target, overwrite=overwrite)
        if target.exists():
            staging.swap(directory, target)
        else:
            directory.rename(target)


def check_target(target: Path, *, overwrite: bool) -> None:
    """Looks whether an export may be put somewhere.

    Raises:
      OverwriteError: There is something else, or an export that is not to be replaced.
    """
    if target.is_dir() and not any(target.iterdir()):
        return
    if not (target.exists() or target.is_symlink()):
        return
    is_ours = (target / MARKER).is_file()
    if not (is_ours and overwrite):
        raise OverwriteError(
            explain(
                f"{target} is there already" + (", an earlier export." if is_ours else "."),
                fix="give --overwrite, or another directory" if is_ours
                else "name a directory that does not exist",
            )
        )  # fmt: skip


_MOST_ROWS = 8192
_CHUNK_BYTES = 16 << 20
_FILE_BYTES = 500 << 20


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written.

    Attributes:
      name: Its path in the export, such as `data/train-00000-of-00001.parquet`.
      split: The split it belongs to.
      examples: How many it has.
      bytes: Its size.
      sha256: Of its contents, in hexadecimal.
    """

    name: str
    split: str
    examples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
      name: The version's full name.
      path: The directory.
      files: Its Parquet files.
    """

    name: str
    path: Path
    files: tuple[ExportedFile, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
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
    report: Callable[[str, int, int], None] = lambda *_: None,
) -> Exported:
    """Writes the examples of a version as Parquet files, in their order.

    A few megabytes of them are in memory at a time. The directory is there whole or not at all.

    Args:
      prepared: The version.
      directory: Where to.
      splits: Only these; None for all.
      binary: Features whose bytes are no text.
      file_bytes: About how large a file may be.
      overwrite: Replace an earlier export.
      complete: Is given the directory before it is in its place, to write more into it.
      report: Is told the split, how many of all its examples are written, and all.

    Returns:
      What was written.

    Raises:
      SplitNotFoundError: There is no such split.
      IncompleteVersionError: A file of the metadata is a link that leads elsewhere.
      FeatureError: There is no such feature, a feature is of a kind that only TFDS reads, or a
        text is none.
      ExampleError: An example is not what its features declare.
      CorruptShardError: A shard is damaged.
      OverwriteError: There is something else.
      DiskFullError: There is no room.
    """
    # Of a link the place it leads to, which may be on a larger disk.
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


def _size_of(shard: Path) -> int:
    try:
        return shard.stat().st_size
    except FileNotFoundError:
        raise missing_shard(shard) from None


class _Split:
    """A split that is written."""

    def __init__(
        self, prepared: Prepared, split: str, columns: Columns, file_bytes: int,
        report: Callable[[str, int, int], None],
    ) -> None:  # fmt: skip
        self._split = split
        self._records = prepared.records(split)
        self._columns = columns
        self._file_bytes = file_bytes
        self._report = report
        size = sum(_size_of(one.path) for one in prepared.shards[split])
        each = max(1, size // max(1, len(self._records)))
        self._rows = int(np.clip(min(_CHUNK_BYTES, file_bytes) // each, 1, _MOST_ROWS))

    def write(self, directory: Path) -> list[ExportedFile]:
        """Writes it; returns the files."""
        written: list[tuple[Path, int]] = []
        total, at = len(self._records), 0
        while at < total or not written:
            path = directory / "data" / f"{self._split}-{len(written):05}.partial"
            end = self._write_file(path, at)
            written.append((path, end - at))
            at = end
        if sum(count for _, count in written) != total:
            raise LostExamplesError(
                explain(
                    f"{total:,} examples are in {self._split}, and others were written.",
                    fix="run the same again; if it stays, please report it",
                )
            )
        return [
            self._finished(path, f"{i:05}-of-{len(written):05}", count)
            for i, (path, count) in enumerate(written)
        ]

    def _write_file(self, path: Path, begin: int) -> int:
        """Writes a file; returns the example that comes after it."""
        total, at = len(self._records), begin
        with (
            path.open("wb") as file,
            pq.ParquetWriter(file, self._columns.schema, compression="zstd") as writer,
        ):
            while at < total and (at == begin or file.tell() < self._file_bytes):
                end = min(at + self._rows, total)
                writer.write_table(self._table(at, end))
                at = end
                self._report(self._split, at, total)
        with path.open("rb") as written:
            os.fsync(written.fileno())
        return at

    def _table(self, begin: int, end: int) -> pa.Table:
        """Returns some of its examples.

        Raises:
          ExampleError: One of them is not what its features declare.
        """
        batch = self._records.read(np.arange(begin, end))
        try:
            return self._columns.table(batch)
        except FeatureMismatchError as error:
            place = self._records.place(begin + error.rows[0])
            raise ExampleError(
                explain(
                    f"The feature {error.feature!r} of {place} cannot be written.",
                    f"Expected: {error.expected}",
                    f"Found: {error.found}",
                    fix="see my-datasets verify --deep, and build or pull the version anew",
                )
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
            explain(
                f"{prepared.name} has no split {', '.join(missing)}.",
                f"Its splits: {', '.join(prepared.shards)}",
                fix="choose among those",
            )
        )
    found = [name for name in prepared.shards if splits is None or name in splits]
    if not found:
        raise SplitNotFoundError(
            explain(
                f"{prepared.name} has no splits: there is nothing to export.",
                fix=f"my-datasets verify {prepared.path} says what it should have",
            )
        )
    return found


def _binary(prepared: Prepared, named: Collection[str]) -> frozenset[str]:
    """Returns the features whose bytes are no text: as named, or as the manifest says."""
    leaves = _bytes_of(prepared.schema.tree)
    unknown = sorted(set(named) - leaves)
    if unknown:
        raise FeatureError(
            explain(
                f"{prepared.name} has no feature of texts or bytes {', '.join(unknown)}.",
                f"Those it has: {', '.join(sorted(leaves)) or 'none'}",
                fix="choose among those",
            )
        )
    return frozenset(named) | _not_text(prepared.metadata.manifest, leaves)


def _bytes_of(tree: Any) -> frozenset[str]:
    return frozenset(leaf.name for leaf in pytree.columns_of(tree) if leaf.form == "bytes")


def _not_text(manifest: Manifest | None, leaves: frozenset[str]) -> frozenset[str]:
    """Returns those of some features whose bytes are no text, as the manifest says."""
    statistics: Mapping[str, Any] = manifest.statistics if manifest else {}
    return leaves & {
        name
        for split in statistics.values()
        for name, one in split["features"].items()
        if one.get("not_text")
    }


def of_records(version_dir: Path, records: RecordBatch, most_bytes: int) -> bytes | None:
    """Returns some examples as a Parquet file; None if they take too much room.

    Args:
      version_dir: The directory with their version's metadata.
      records: Their records.
      most_bytes: How large the file may be.

    Raises:
      FeatureError: A feature is of a kind that only TFDS reads, or a text is none.
      MisfitError: An example is not what its features declare.
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
