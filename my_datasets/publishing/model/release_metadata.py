"""The metadata of a release: that they fit its record and each other, and which files are none."""

from pathlib import Path

from my_datasets.errors import (
    CorruptReleaseError,
    MyDatasetsError,
    UnregisteredFeatureError,
    explain,
)
from my_datasets.metadata import sidecars
from my_datasets.metadata.content import MOST_LABELS, Content
from my_datasets.metadata.dataset_info import MALFORMED, Declared
from my_datasets.metadata.feature_classes import read_features
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.publishing.model import record
from my_datasets.publishing.model.record import Record, ReleasedFile

LABELS = ".labels.txt"


def understood(wanted: Record, directory: Path, url: str) -> tuple[Declared, Content]:
    """Returns what the metadata of a release say.

    Args:
      wanted: Its record.
      directory: Where they are.
      url: The store from which they came, for messages.

    Raises:
      CorruptReleaseError: They do not fit the record.
      UnregisteredFeatureError: They name a feature class that is neither TFDS's nor registered.
    """
    config = f"/{wanted.config}" if wanted.config else ""
    try:
        declared = Declared.read(directory)
        read_features(directory)
        made = Manifest.read(directory)
        if made is None or made.content is None or made.content.digest != wanted.digest:
            raise ValueError("the manifest is another one's")
        if declared.name != f"{wanted.name}{config}:{wanted.version}":
            raise ValueError(f"they are those of {declared.name:.100}")
        names = shards_of(declared)
        files = {one.name: (one.bytes, one.sha256) for one in wanted.files}
        missing = sorted(names - {*files})
        if missing:
            raise ValueError(f"not among the files: {missing[0]:.100}")
        listed = [one for split in made.content.splits.values() for one in split.shards]
        other = [one.name for one in listed if files.get(one.name) != (one.bytes, one.sha256)]
        if other or {one.name for one in listed} != names:
            raise ValueError(f"the manifest lists other shards: {(*other, 'other names')[0]:.100}")
        if names & set(record.FIRST):
            raise ValueError("metadata are no shards")
    except UnregisteredFeatureError:
        raise
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        raise CorruptReleaseError(
            explain(
                f"The metadata of {wanted.name}:{wanted.key} in {url} do not fit together.",
                f"Found: {str(error).partition(chr(10))[0][:200] or type(error).__name__}",
                fix="ask who publishes there to look at it; nothing of it is used here",
            )
        ) from error
    return declared, made.content


def is_metadata(one: ReleasedFile) -> bool:
    """Returns whether a file says what the others are: it comes before them."""
    return one.name in record.FIRST or (one.name.endswith(LABELS) and one.bytes <= MOST_LABELS)


def shards_of(declared: Declared) -> set[str]:
    """Returns the names of the files that hold examples."""
    return {one.name for some in declared.splits.values() for one in some}


def read_with(wanted: Record, declared: Declared) -> list[ReleasedFile]:
    """Returns the files that readers of a version need beside its shards: metadata and indexes."""
    shards = shards_of(declared)
    return [
        one
        for one in wanted.files
        if one.name not in shards and sidecars.kind_of(one.name) is not Sidecar.KEYS
    ]
