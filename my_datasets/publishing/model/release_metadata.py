"""The metadata of a release, checked against its record, and reduced to some of its splits."""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from my_datasets.errors import (
    CorruptReleaseError,
    MyDatasetsError,
    UnregisteredFeatureError,
    problem_of,
)
from my_datasets.metadata import manifest, sidecars
from my_datasets.metadata.content import MOST_LABELS, Content
from my_datasets.metadata.dataset_info import (
    FILE_NAME,
    MALFORMED,
    Declared,
    dataset_info,
    essentials,
)
from my_datasets.metadata.feature_classes import read_features
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.publishing.model import record
from my_datasets.publishing.model.record import Record, ReleasedFile
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.verified_files import verified_files

LABELS = ".labels.txt"

# The metadata files that are rewritten.
REWRITTEN = (FILE_NAME, manifest.FILE_NAME)


def parse_metadata(wanted: Record, directory: Path, url: str) -> tuple[Declared, Content]:
    """Returns the metadata of a release; `url` is its store, for messages.

    Raises:
      CorruptReleaseError: They do not match the record or each other.
      UnregisteredFeatureError: They name a feature class that is neither TFDS's nor registered.
    """
    try:
        declared = Declared.read(directory)
        read_features(directory)
        made = Manifest.read(directory)
        if made is None or made.content is None or made.content.digest != wanted.digest:
            raise ValueError("the manifest is missing or has another digest")
        if declared.name != wanted.full_name:
            raise ValueError(f"dataset_info.json describes {declared.name:.100}")
        names = shards_of(declared)
        files = {one.name: (one.bytes, one.sha256) for one in wanted.files}
        missing = sorted(names - {*files})
        if missing:
            raise ValueError(f"the record lacks the shard {missing[0]:.100}")
        listed = [one for split in made.content.splits.values() for one in split.shards]
        other = [one.name for one in listed if files.get(one.name) != (one.bytes, one.sha256)]
        if other or {one.name for one in listed} != names:
            raise ValueError(f"the manifest lists other shards: {(*other, 'other names')[0]:.100}")
        if names & set(record.FIRST):
            raise ValueError("a metadata file is declared as a shard")
    except UnregisteredFeatureError:
        raise
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        raise CorruptReleaseError(
            f"The metadata of {wanted.name}:{wanted.key} in {url} is inconsistent.",
            f"Found: {problem_of(error)[:200]}",
            fix="ask the publisher to check it; this machine uses nothing of it",
        ) from error
    return declared, made.content


def is_metadata(one: ReleasedFile) -> bool:
    """Returns whether a file describes the others, and so is downloaded first."""
    return one.name in record.FIRST or (one.name.endswith(LABELS) and one.bytes <= MOST_LABELS)


def shards_of(declared: Declared) -> set[str]:
    """Returns the names of the files that contain examples."""
    return {one.name for some in declared.splits.values() for one in some}


def read_with(wanted: Record, declared: Declared) -> list[ReleasedFile]:
    """Returns the files that readers need in addition to shards: metadata and indexes."""
    shards = shards_of(declared)
    return [
        one
        for one in wanted.files
        if one.name not in shards and sidecars.kind_of(one.name) is not Sidecar.KEYS
    ]


def only_splits(version_dir: Path, splits: Collection[str], content: Content) -> None:
    """Rewrites the metadata of a version with the whole release's, for some of its splits.

    Like a version built with `--splits`, it has another digest, and the option in its manifest.
    """
    path, info = version_dir / FILE_NAME, dataset_info(version_dir)
    info["splits"] = [one for one in info["splits"] if one["name"] in splits]
    write_whole(path, json.dumps(info, indent=2, sort_keys=True))
    made = Manifest.read(version_dir)
    if made is None:
        return
    chosen = {name: one for name, one in content.splits.items() if name in splits}
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
        content=Content(content.schema, chosen),
        metadata=essentials(version_dir),
        files={name: one for name, one in made.files.items() if name not in left_out},
        statistics={name: one for name, one in made.statistics.items() if name in splits},
    ).write(version_dir)


def is_part_made_here(version_dir: Path, whole: Record, splits: object) -> bool:
    """Returns whether this machine wrote the metadata of some splits, unchanged since."""
    verified = verified_files()
    return isinstance(splits, list | tuple) and all(
        verified.knows(version_dir / name, _written_for(whole, splits, name)) for name in REWRITTEN
    )


def remember_part(version_dir: Path, whole: Record, splits: Sequence[str]) -> None:
    """Records that this machine wrote the metadata; see `is_part_made_here`."""
    for name in REWRITTEN:
        verified_files().remember(version_dir / name, _written_for(whole, splits, name))


def _written_for(whole: Record, splits: Sequence[str], name: str) -> str:
    """Returns the key that stands for the SHA-256 of a rewritten file."""
    text = json.dumps([whole.identity, list(splits), name])
    return hashlib.sha256(text.encode()).hexdigest()
