"""Resolves a reference to a release: selects the version, checks it, and describes it."""

import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from my_datasets.core.json_types import Json
from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionPattern
from my_datasets.errors import (
    CorruptReleaseError,
    MyDatasetsError,
    ReleaseNotFoundError,
    YankedError,
    problem_of,
)
from my_datasets.exporting.version_summary import About
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.record import (
    MOST_SHOWN_LABELS,
    Record,
    is_metadata,
    key_of,
    parse_metadata,
)
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Trusts
from my_datasets.publishing.model.store_layout import Index, Release, ReleaseState
from my_datasets.publishing.transfer import fetch
from my_datasets.resolving.resolver import Request
from my_datasets.storage.backends import open_store
from my_datasets.storage.retry import RetryingStore, RetryPolicy
from my_datasets.storage.store import Store

_SHOWN = 10


def select_version(index: Index, reference: DatasetReference, url: str) -> tuple[str, Release]:
    """Returns the key and entry of the highest matching release that is not yanked.

    Raises:
      ReleaseNotFoundError: No release matches.
      YankedError: All that match are yanked.
    """
    config = reference.config or index.default_config
    versions = index.versions(config)
    wanted = reference.version or VersionPattern(None, None, None)
    matching = {version: one for version, one in versions.items() if wanted.matches(version)}
    good = [version for version, one in matching.items() if one.state is ReleaseState.PUBLISHED]
    if good:
        return key_of(config, max(good)), versions[max(good)]
    yanked = {v: one for v, one in matching.items() if one.state is ReleaseState.YANKED}
    if yanked:
        name = f"{index.dataset}/{config}" if config else index.dataset
        messages = [f"{name}:{version}: {one.message}" for version, one in sorted(yanked.items())]
        raise YankedError(
            f"Every matching release in {url} was yanked.",
            *messages[-_SHOWN:],
            fix="choose another version; my-datasets ls shows them",
        )
    by_state = {
        state: [str(version) for version, one in versions.items() if one.state is state]
        for state in ReleaseState
    }
    placing, configs = ", ".join(by_state[ReleaseState.PLACING]), index.configs
    raise ReleaseNotFoundError(
        f"{url} has no release of {str(reference)!r}.",
        f"Versions: {', '.join(by_state[ReleaseState.PUBLISHED][-_SHOWN:]) or 'none'}",
        f"Being published now: {placing}" if placing else "",
        f"Configs: {', '.join(configs[:_SHOWN])}" if configs and config not in configs else "",
        fix="choose one of those; my-datasets ls shows the releases",
    )


@dataclass(frozen=True)
class ResolvedRelease:
    """A resolved release.

    Attributes:
      key: Its key in the index.
      release: Its entry in the index.
      request: The requested dataset, with the lock that applies to it.
    """

    client: CatalogClient
    index: Index
    key: str
    release: Release
    record: Record
    request: Request

    @property
    def url(self) -> str:
        """The address of its folder, for display."""
        return f"{self.client.store.url}/{store_layout.release_of(self.record.name, self.key)}"


def resolve_release(
    reference: DatasetReference,
    store: str | os.PathLike[str] | Store,
    *,
    use_lock: bool = True,
    keys: Trusts | None = None,
    patience: RetryPolicy | None = None,
    memory: RollbackState | None = None,
) -> ResolvedRelease:
    """Resolves a reference to the highest matching release that is not yanked.

    The arguments and errors are those of `pull`.
    """
    request = Request.of(reference, use_lock=use_lock)
    exact = request.exact
    client = CatalogClient(RetryingStore(open_store(store), patience), keys=keys, memory=memory)
    client.required()
    index = client.index(exact.name)
    key, release = select_version(index, exact, client.store.url)
    request.check_digest(release.digest, client.store.url)
    record = client.record(exact.name, key, release)
    return ResolvedRelease(client, index, key, release, record, request)


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
      is_trusted: Whether a trusted key signed it; False if no keys are configured.
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
    mine, url = found.record, found.client.store.url
    with tempfile.TemporaryDirectory(prefix="my_datasets-") as directory:
        version_dir = Path(directory)
        metadata = [one for one in mine.files if is_metadata(one, MOST_SHOWN_LABELS)]
        fetch(found.client, mine, version_dir, metadata)
        declared, _ = parse_metadata(mine, version_dir, url)
        try:
            about = About.read(version_dir)
        except (MyDatasetsError, OSError, *MALFORMED) as error:
            raise CorruptReleaseError(
                f"The metadata of {found.url} is invalid.",
                f"Found: {problem_of(error)[:200]}",
                fix="ask the publisher to check it",
            ) from error
    sizes = {one.name: one.bytes for one in mine.files}
    splits = {
        name: DescribedSplit(
            sum(one.examples for one in some), len(some), sum(sizes[one.name] for one in some)
        )
        for name, some in declared.splits.items()
    }
    versions = {str(version): one for version, one in found.index.versions(mine.config).items()}
    is_trusted = found.client.keys is not None
    return ReleaseDescription(
        mine.full_name, url, found.release, is_trusted, splits, about, versions
    )


def _entry(release: Release) -> dict[str, Json]:
    return {
        "state": release.state.value,
        "message": release.message,
        "published": release.published,
        "bytes": release.bytes,
        "digest": release.digest,
    }
