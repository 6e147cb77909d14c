"""`adopt`: a manifest for a version that plain TFDS prepared."""

from pathlib import Path

from my_datasets._version import __version__
from my_datasets.comparison import hashing
from my_datasets.comparison.subject import Subject
from my_datasets.core.declared import essentials
from my_datasets.core.machine import cores
from my_datasets.core.manifest import FILE_NAME, Manifest
from my_datasets.errors import DataDirError, IncompleteVersionError, explain


def adopt(version_dir: Path, *, workers: int | None = None) -> Manifest:
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
    subject = Subject.read(version_dir)
    if subject.manifest is not None:
        raise DataDirError(
            explain(
                f"{version_dir} has a manifest already.",
                mend=f"compare with it: my-datasets verify {version_dir}; or delete {FILE_NAME} "
                "first, if what is there now shall hold",
            )
        )
    if subject.declared is None or subject.issues:
        raise IncompleteVersionError(
            explain(
                f"{version_dir} is not a prepared version.",
                *(f"{issue.node}: {issue.problem} {issue.found}" for issue in subject.issues),
                mend="name the directory of a version that TFDS prepared",
            )
        )
    content = hashing.content_of(version_dir, subject.declared, workers=workers or cores())
    manifest = Manifest(
        {},
        content=content,
        provenance={"adopted": True, "software": {"my_datasets": __version__}},
        metadata=essentials(version_dir),
    )
    manifest.write(version_dir)
    return manifest
