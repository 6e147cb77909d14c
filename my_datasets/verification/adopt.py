"""`adopt`: a manifest for a version that plain TFDS prepared."""

import os
import tempfile
from pathlib import Path
from typing import Any

from my_datasets._version import __version__
from my_datasets.comparison import examine
from my_datasets.comparison.examine import Examination
from my_datasets.comparison.version_metadata import ComparedVersion
from my_datasets.core.machine import cores
from my_datasets.errors import DataDirError, IncompleteVersionError, explain
from my_datasets.metadata import recorded_files
from my_datasets.metadata.content import Content, ShardContent
from my_datasets.metadata.dataset_info import Declared, DeclaredShard
from my_datasets.metadata.manifest import FILE_NAME, Manifest
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.storage import regular_files


def adopt(version_dir: str | os.PathLike[str], *, workers: int | None = None) -> Manifest:
    """Notes what is in a version now, so that any later change will be found.

    Each shard is read as a whole, and each record's checksum compared.

    Args:
      version_dir: The version's directory.
      workers: How many processes read shards; None for one for each core.

    Returns:
      The manifest, which was written.

    Raises:
      IncompleteVersionError: The directory has no metadata of a prepared version.
      DataDirError: There is a manifest already.
      CorruptShardError: A shard is damaged or not there: nothing is written.
    """
    version_dir = Path(version_dir).expanduser()
    subject = ComparedVersion.read(version_dir)
    if subject.manifest is not None:
        raise DataDirError(
            explain(
                f"{version_dir} has a manifest already.",
                fix=f"compare with it: my-datasets verify {version_dir}; or delete {FILE_NAME} "
                "first, if what is there now shall hold",
            )
        )
    if subject.declared is None or subject.issues:
        raise IncompleteVersionError(
            explain(
                f"{version_dir} is not a prepared version.",
                *(f"{issue.node}: {issue.problem} {issue.found}" for issue in subject.issues),
                fix="name the directory of a version that TFDS prepared",
            )
        )
    content, statistics = examine_version(version_dir, subject.declared, workers=workers)
    manifest = Manifest(
        {},
        content=content,
        statistics=statistics,
        provenance={"adopted": True, "software": {"my_datasets": __version__}},
        metadata=subject.metadata.essentials,
        metadata_copy=recorded_files.of_version(version_dir),
        files=recorded_files.of_files(
            version_dir, {one.name for some in subject.declared.splits.values() for one in some}
        ),
    )
    manifest.write(version_dir)
    return manifest


def examine_version(
    version_dir: Path, declared: Declared, *, workers: int | None = None
) -> tuple[Content, dict[str, Any]]:
    """Returns what is in a version, whoever wrote it, and the statistics of its splits.

    Args:
      version_dir: The version's directory.
      declared: What it declares.
      workers: How many processes read shards; None for one for each core.

    Raises:
      CorruptShardError: A shard is damaged or not there.
      DataDirError: It is of a format that is not read here.
    """
    metadata = VersionMetadata(version_dir)
    with tempfile.TemporaryDirectory() as scratch:
        found = examine.examine(
            version_dir, declared, Path(scratch), Examination(metadata.known_leaves),
            workers=workers or cores(),
        )  # fmt: skip
        splits = {
            name: found[name].content([_shard(version_dir / one.name, one) for one in shards])
            for name, shards in declared.splits.items()
        }
        statistics = {
            name: one.statistics.summary() for name, one in found.items() if one.statistics
        }
    return Content(metadata.schema_digest, splits), statistics


def _shard(path: Path, declared: DeclaredShard) -> ShardContent:
    return ShardContent(
        path.name, path.stat().st_size, declared.examples, regular_files.sha256_of(path)
    )
