"""`adopt`: a manifest for a version that plain TFDS prepared."""

from collections.abc import Callable
from pathlib import Path

from my_datasets._version import __version__
from my_datasets.comparison import hashing
from my_datasets.comparison.subject import Subject
from my_datasets.core.content import Content
from my_datasets.core.declared import essentials
from my_datasets.core.manifest import FILE_NAME, Manifest
from my_datasets.errors import DataDirError, IncompleteVersionError, explain


def adopt(version_dir: Path, *, report: Callable[[str], None] = lambda _: None) -> Manifest:
    """Notes what is in a version now, so that any later change will be found.

    Each shard is read as a whole, and each record's checksum compared.

    Args:
      version_dir: The version's directory.
      report: Is told of each shard that was read.

    Returns:
      The manifest, which was written.

    Raises:
      IncompleteVersionError: The directory has no metadata of a prepared version.
      DataDirError: There is a manifest already.
      CorruptShardError: A shard is damaged: nothing is written.
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
    declared = subject.declared
    shards: dict[str, hashing.Hashed] = {}
    for some in declared.splits.values():
        for one in some:
            if not (version_dir / one.name).is_file():
                raise IncompleteVersionError(
                    explain(
                        f"{version_dir / one.name} is not there.", mend="build the version anew"
                    )
                )
            found = hashing.hashed(version_dir / one.name, declared.file_format)
            if found.content.examples != one.examples:
                raise DataDirError(
                    explain(
                        f"{version_dir / one.name} has {found.content.examples:,} records.",
                        f"Expected: {one.examples:,}, as dataset_info.json says",
                        mend="build the version anew",
                    )
                )
            shards[one.name] = found
            report(one.name)
    content: Content = hashing.version_of(version_dir, declared, shards)
    manifest = Manifest(
        {},
        content=content,
        provenance={"adopted": True, "software": {"my_datasets": __version__}},
        metadata=essentials(version_dir),
    )
    manifest.write(version_dir)
    return manifest
