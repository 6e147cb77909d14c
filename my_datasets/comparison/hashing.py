"""What is in shards: hashes of files, and of their examples."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from my_datasets.building.engines import processes
from my_datasets.core.declared import Declared
from my_datasets.core.hashes import Hashes, mapped
from my_datasets.errors import CorruptShardError, DataDirError, explain
from my_datasets.records import canonical, stored
from my_datasets.records.columns import UnreadableRecordError

# Less than this is read by one process.
FEW_BYTES = 16 << 20


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _corrupt(path: Path, row: int, reason: str) -> CorruptShardError:
    return CorruptShardError(
        explain(
            f"{path} is damaged at record {row:,} (counted from 0).",
            reason,
            mend="build or pull the version anew",
        )
    )


def hashes_of(
    version_dir: Path, declared: Declared, directory: Path, *, without: frozenset[str], workers: int
) -> dict[str, list[Hashes]]:
    """Returns the hashes of the examples of each split, in files that are mapped.

    Args:
      version_dir: The version's directory.
      declared: What it declares.
      directory: Where the files come to lie; an empty one.
      without: Features that are left out.
      workers: How many processes read shards.

    Raises:
      CorruptShardError: A shard is damaged, or not there.
    """
    shards = [one for some in declared.splits.values() for one in some]
    tasks = [
        _Task(version_dir / one.name, declared.file_format, directory / str(number), without)
        for number, one in enumerate(shards)
    ]
    missing = [task.shard for task in tasks if not task.shard.is_file()]
    if missing:
        raise CorruptShardError(
            explain(f"{missing[0]} is not there.", mend="build or pull the version anew")
        )
    total = sum(task.shard.stat().st_size for task in tasks)
    if workers == 1 or total < FEW_BYTES or len(tasks) == 1 or not processes.available():
        for task in tasks:
            _Worker().handle(task)
    else:
        done = processes.run(
            tasks, workers, lambda _: _Worker(), lambda _: None,
            describe=lambda task: f"shard {task.shard.name}",
        )  # fmt: skip
        for _ in done:
            pass
    found = iter(tasks)
    return {
        name: [mapped(next(found).target) for _ in some] for name, some in declared.splits.items()
    }


@dataclass(frozen=True)
class _Task:
    shard: Path
    file_format: str
    target: Path
    without: frozenset[str]


class _Worker:
    """Hashes shards, here or in a process of its own."""

    def handle(self, task: _Task) -> None:
        parts = _parts(task.shard, task.file_format, task.without)
        with task.target.open("xb") as file:
            for part in parts:
                part.tofile(file)

    def finish(self) -> None:
        pass


def _parts(path: Path, file_format: str, without: frozenset[str]) -> Iterator[Hashes]:
    """Yields the hashes of a shard's examples, some at a time; errors as for `content_of`."""
    row = 0
    try:
        for records in stored.records(path, file_format):
            yield canonical.hashes(records, without)
            row += len(records)
    except stored.UnknownFormatError as error:
        raise DataDirError(
            explain(
                f"{path} is of the format {file_format}.",
                "Expected: tfrecord, array_record or parquet",
                mend="build the version in one of those",
            )
        ) from error
    except stored.DamagedError as error:
        raise _corrupt(path, error.row, error.reason) from error
    except UnreadableRecordError as error:
        raise _corrupt(path, row + error.row, f"It is no tf.Example: {error.reason}.") from error
