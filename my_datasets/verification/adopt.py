"""`adopt`: writes a manifest for a version that plain TFDS prepared."""

import os
import tempfile
from pathlib import Path

from my_datasets._version import __version__
from my_datasets.comparison import examine
from my_datasets.comparison.examine import Examination
from my_datasets.comparison.version_metadata import ComparedVersion
from my_datasets.core.processes import cores
from my_datasets.errors import DataDirError, IncompleteVersionError
from my_datasets.metadata import recorded_files
from my_datasets.metadata.content import Content, ShardContent
from my_datasets.metadata.dataset_info import Declared, DeclaredShard
from my_datasets.metadata.manifest import FILE_NAME, Manifest
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.storage import regular_files


def adopt(version_dir: str | os.PathLike[str], *, workers: int | None = None) -> Manifest:
    """Writes the manifest of a version, so that any later change is detected.

    Reads all shards, in one process per core if `workers` is None, and verifies each record's
    checksum.

    Raises:
      IncompleteVersionError: The directory has no metadata of a prepared version.
      DataDirError: There already is a manifest.
      CorruptShardError: A shard is damaged or missing; nothing is written.
    """
    version_dir = Path(version_dir).expanduser()
    subject = ComparedVersion.read(version_dir)
    if subject.manifest is not None:
        raise DataDirError(
            f"{version_dir} already has a manifest.",
            fix=f"run my-datasets verify {version_dir}, or delete {FILE_NAME} to accept the "
            "current data",
        )
    if subject.declared is None or subject.issues:
        raise IncompleteVersionError(
            f"{version_dir} is not a prepared version.",
            *(f"{issue.node}: {issue.problem} {issue.found}" for issue in subject.issues),
            fix="name the directory of a version that TFDS prepared",
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
            version_dir, {one.name for some in subject.splits.values() for one in some}
        ),
    )
    manifest.write(version_dir)
    return manifest


def examine_version(
    version_dir: Path, declared: Declared, *, workers: int | None = None
) -> tuple[Content, dict[str, dict[str, object]]]:
    """Returns the content of a version that anyone wrote, and the statistics of its splits.

    Raises:
      CorruptShardError: A shard is damaged or missing.
      DataDirError: The file format is not supported.
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
