"""Some splits of a release: metadata that say no more than what is there."""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from my_datasets.metadata import manifest, sidecars
from my_datasets.metadata.content import Content
from my_datasets.metadata.dataset_info import FILE_NAME, dataset_info, essentials
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing.model.record import Record
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.verified_files import verified_files

# What is written anew.
REWRITTEN = (FILE_NAME, manifest.FILE_NAME)


def only_splits(version_dir: Path, splits: Collection[str], content: Content) -> None:
    """Writes the metadata of a version anew, for some of its splits.

    It is a version of its own kind then, as one that was built with `--splits`: with another
    digest, and an option in its manifest that says why.

    Args:
      version_dir: The directory; its metadata are those of the whole release.
      splits: The splits that stay.
      content: What is in the whole release.
    """
    path, info = version_dir / FILE_NAME, dataset_info(version_dir)
    info["splits"] = [one for one in info["splits"] if one["name"] in splits]
    write_whole(path, json.dumps(info, indent=2, sort_keys=True))
    made = Manifest.read(version_dir)
    if made is None:
        return
    kept = {name: one for name, one in content.splits.items() if name in splits}
    left_out = {
        sidecar
        for name, split in content.splits.items()
        if name not in splits
        for shard in split.shards
        for sidecar in sidecars.names_of(shard.name)
    }
    replace(
        made,
        options={**made.options, "splits": sorted(splits)},
        quarantined={name: n for name, n in made.quarantined.items() if name in splits},
        splits={name: one for name, one in made.splits.items() if name in splits},
        content=Content(content.schema, kept),
        metadata=essentials(version_dir),
        files={name: one for name, one in made.files.items() if name not in left_out},
        statistics={name: one for name, one in made.statistics.items() if name in splits},
    ).write(version_dir)


def is_part_made_here(version_dir: Path, whole: Record, splits: Any) -> bool:
    """Returns whether this machine wrote the metadata of some splits, and nobody changed them.

    Args:
      version_dir: The directory.
      whole: The record of the release.
      splits: The splits that the manifest says are there.
    """
    verified = verified_files()
    return isinstance(splits, list | tuple) and all(
        verified.knows(version_dir / name, _written_for(whole, splits, name)) for name in REWRITTEN
    )


def remember_part(version_dir: Path, whole: Record, splits: Sequence[str]) -> None:
    """Notes that this machine wrote the metadata of some splits; see `is_part_made_here`."""
    for name in REWRITTEN:
        verified_files().remember(version_dir / name, _written_for(whole, splits, name))


def _written_for(whole: Record, splits: Sequence[str], name: str) -> str:
    """Returns what stands for the SHA-256 of a file that was written for some splits."""
    text = json.dumps([whole.identity, list(splits), name])
    return hashlib.sha256(text.encode()).hexdigest()
