"""Describes a release from its verified metadata, without pulling it."""

import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from my_datasets.core.json_types import Json
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import CorruptReleaseError, MyDatasetsError, problem_of
from my_datasets.exporting.version_summary import About
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.publishing.download import fetch
from my_datasets.publishing.model import record
from my_datasets.publishing.model.index import Release
from my_datasets.publishing.model.release_metadata import LABELS, parse_metadata, read_with
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.resolve_release import ResolvedRelease, resolve_release
from my_datasets.storage.retry import RetryPolicy
from my_datasets.storage.store import Store

# Larger files of class names are skipped.
_MOST_LABELS = 16 << 20


@dataclass(frozen=True)
class DescribedSplit:
    """The number of examples and shards of a split, and the size of its shards."""

    examples: int
    shards: int
    bytes: int


@dataclass(frozen=True)
class ReleaseDescription:
    """A description of a release.

    Attributes:
      name: The full name.
      store: The address of the store.
      release: The index's entry of the release.
      is_trusted: Whether a trusted key signed it; False if no keys are configured.
      splits: The splits by name.
      about: The description from its metadata.
      versions: The index's entries of all versions of its config, lowest first.
    """

    name: str
    store: str
    release: Release
    is_trusted: bool
    splits: dict[str, DescribedSplit]
    about: About
    versions: dict[str, Release]

    def to_json(self) -> dict[str, Json]:
        """Returns a form for scripts."""
        about, release = self.about, self.release
        return {
            "name": self.name,
            "store": self.store,
            **_entry(release),
            "files": release.files,
            "signed_by": [one.key for one in release.signatures],
            "is_trusted": self.is_trusted,
            "description": about.description,
            "urls": list(about.urls),
            "licence": about.licence,
            "citation": about.citation,
            "release_notes": about.notes,
            "modalities": list(about.modalities),
            "splits": {name: asdict(one) for name, one in self.splits.items()},
            "features": [asdict(one) for one in about.features],
            "versions": [
                {"version": version, **_entry(one)} for version, one in self.versions.items()
            ],
        }


def describe(
    reference: str | DatasetReference,
    store: str | os.PathLike[str] | Store,
    *,
    keys: Trusts | None = None,
    patience: RetryPolicy | None = None,
    memory: RollbackState | None = None,
) -> ReleaseDescription:
    """Describes a release; downloads only its metadata.

    The arguments and errors are those of `pull`.
    """
    found = resolve_release(
        DatasetReference.of(reference), store, keys=keys, patience=patience, memory=memory
    )
    mine = found.record
    with tempfile.TemporaryDirectory(prefix="my_datasets-") as directory:
        splits, about = _read(found, Path(directory))
    versions = found.index.versions(mine.config)
    return ReleaseDescription(
        mine.full_name, found.ledger.store.url, found.release,
        found.ledger.keys is not None, splits, about,
        {str(version): one for version, one in versions.items()},
    )  # fmt: skip


def _read(found: ResolvedRelease, directory: Path) -> tuple[dict[str, DescribedSplit], About]:
    mine = found.record
    first = [one for one in mine.files if one.name in record.FIRST]
    fetch(found.ledger, mine, directory, first)
    declared, _ = parse_metadata(mine, directory, found.ledger.store.url)
    labels = [
        one
        for one in read_with(mine, declared)
        if one.name.endswith(LABELS) and one.bytes <= _MOST_LABELS
    ]
    fetch(found.ledger, mine, directory, labels)
    sizes = {one.name: one.bytes for one in mine.files}
    splits = {
        name: DescribedSplit(
            sum(one.examples for one in some), len(some), sum(sizes[one.name] for one in some)
        )
        for name, some in declared.splits.items()
    }
    try:
        return splits, About.read(directory)
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        raise CorruptReleaseError(
            f"The metadata of {found.url} is invalid.",
            f"Found: {problem_of(error)[:200]}",
            fix="ask the publisher to check it",
        ) from error


def _entry(release: Release) -> dict[str, Json]:
    return {
        "state": release.state.value,
        "message": release.message,
        "published": release.published,
        "bytes": release.bytes,
        "digest": release.digest,
    }
