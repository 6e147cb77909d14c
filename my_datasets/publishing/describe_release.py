"""What is known of a release before it is pulled: from its metadata, which are verified."""

import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from my_datasets.core.reference import DatasetReference
from my_datasets.errors import CorruptReleaseError, MyDatasetsError, explain, problem_of
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

# Names of classes are small, or are left out.
_MOST_LABELS = 16 << 20


@dataclass(frozen=True)
class DescribedSplit:
    """A split of a release.

    Attributes:
      examples: How many it has.
      shards: In how many files.
      bytes: The size of those.
    """

    examples: int
    shards: int
    bytes: int


@dataclass(frozen=True)
class ReleaseDescription:
    """A release, as its metadata describe it.

    Attributes:
      name: Its full name.
      store: Where it is.
      release: What the index says of it.
      is_trusted: Whether it is signed by somebody who is trusted; False if nobody said who is.
      splits: By name.
      about: What it is.
      versions: What the index says of all versions of its config, by version, lowest first.
    """

    name: str
    store: str
    release: Release
    is_trusted: bool
    splits: dict[str, DescribedSplit]
    about: About
    versions: dict[str, Release]

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
        about, release = self.about, self.release
        return {
            "name": self.name,
            "store": self.store,
            **_told(release),
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
                {"version": version, **_told(one)} for version, one in self.versions.items()
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
    """Returns what is known of a release. Only its metadata come from the store.

    Args:
      reference: For example `digits:1.*.*`: the release that `pull` would bring.
      store: Where it is, as `open_store` takes it.
      keys: Whose signatures count; with them, what is not signed is refused.
      patience: How long the store is given where it does not answer well.
      memory: What this machine has seen of stores.

    Raises:
      InvalidReferenceError, ReleaseNotFoundError, YankedError, LockError, CorruptReleaseError,
      SignatureError, StoreError: As `pull`.
    """
    found = resolve_release(
        DatasetReference.of(reference), store, keys=keys, patience=patience, memory=memory
    )
    mine = found.record
    config = f"/{mine.config}" if mine.config else ""
    with tempfile.TemporaryDirectory(prefix="my_datasets-") as directory:
        splits, about = _read(found, Path(directory))
    versions = found.index.versions(mine.config)
    return ReleaseDescription(
        f"{mine.name}{config}:{mine.version}", found.ledger.store.url, found.release,
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
            explain(
                f"The metadata of {found.url} cannot be understood.",
                f"Found: {problem_of(error)[:200]}",
                fix="ask who publishes there to look at it",
            )
        ) from error


def _told(release: Release) -> dict[str, Any]:
    return {
        "state": release.state.value,
        "message": release.message,
        "published": release.published,
        "bytes": release.bytes,
        "digest": release.digest,
    }
