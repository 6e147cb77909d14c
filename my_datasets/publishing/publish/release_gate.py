"""The version gate, against what is published: no number says less than what changed."""

import tempfile
from pathlib import Path

from my_datasets.comparison import gate
from my_datasets.core import version_rules
from my_datasets.core.version import VersionNumber
from my_datasets.core.version_rules import Bump
from my_datasets.errors import MyDatasetsError
from my_datasets.metadata import feature_changes
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.index import Index, Release, ReleaseState
from my_datasets.publishing.model.record import FIRST, Record, key_of
from my_datasets.publishing.pull.download import fetch
from my_datasets.storage.backends.local import LocalStore


def check(version_dir: Path, wanted: Record, index: Index, ledger: CatalogClient) -> None:
    """Compares a version with the releases next to it: the one below, and the one above.

    Where a version with the same content lies beside it on this machine, or the store is a
    directory, that is read; otherwise the release is downloaded, and deleted again: its metadata
    only, if they prove what changed.

    Args:
      version_dir: The version that is to be published.
      wanted: Its record.
      index: The releases of its dataset.
      ledger: Of the store.

    Raises:
      VersionGateError: A number was raised by too little for what changed.
    """
    there = {
        version: one
        for version, one in index.versions(wanted.config).items()
        if one.state is ReleaseState.PUBLISHED
    }
    below = [version for version in there if version < wanted.version]
    above = [version for version in there if version > wanted.version]
    # Any change may come with a new major version.
    neighbours = [
        one
        for one in (*below[-1:], *above[:1])
        if version_rules.between(*sorted((one, wanted.version))) is not Bump.MAJOR
    ]
    if not neighbours:
        return
    # Beside it, as that is where there is room for data.
    with tempfile.TemporaryDirectory(
        prefix=f".{version_dir.name}.gate-", dir=_writable(version_dir.parent)
    ) as directory:
        siblings = Path(directory) / version_dir.resolve().parent.name
        siblings.mkdir()
        for version in neighbours:
            found = _here(version_dir, version, there[version])
            if found is None:
                target = Path(directory) / "downloaded" / str(version)
                found = _there(ledger, wanted, version, there[version], version_dir, target)
            (siblings / str(version)).symlink_to(found, target_is_directory=True)
        gate.check(version_dir, siblings)


def _here(version_dir: Path, version: VersionNumber, release: Release) -> Path | None:
    """Returns a directory on this machine that has the content of a release."""
    path = version_dir.resolve().parent / str(version)
    try:
        made = Manifest.read(path)
    except (MyDatasetsError, OSError):
        return None
    if made is None or made.content is None or made.content.digest != release.digest:
        return None
    return path


def _there(
    ledger: CatalogClient,
    wanted: Record,
    version: VersionNumber,
    release: Release,
    new: Path,
    target: Path,
) -> Path:
    """Returns a directory with as much of a release as is needed to compare it with another."""
    key = key_of(wanted.config, version)
    store = ledger.store.origin
    if isinstance(store, LocalStore):
        return store.path_of(store_layout.release_of(wanted.name, key))
    found = ledger.record(wanted.name, key, release)
    fetch(ledger, found, target, [one for one in found.files if one.name in FIRST])
    shards = {one.name for some in Declared.read(target).splits.values() for one in some}
    # What lies beside a shard, for readers, ends so.
    metadata = [
        one for one in found.files if one.name not in shards and not one.name.endswith(".npy")
    ]
    fetch(ledger, found, target, metadata)
    if not _are_proved_same(target, new):
        fetch(ledger, found, target)
    return target


def _are_proved_same(one: Path, other: Path) -> bool:
    """Returns whether manifests prove that two versions have the same examples in common splits."""
    made = Manifest.read(one), Manifest.read(other)
    splits = [each.content.splits if each and each.content else {} for each in made]
    common = [name for name in splits[0] if name in splits[1]]
    is_same = all(splits[0][name].ordered == splits[1][name].ordered for name in common)
    return bool(common) and is_same and not feature_changes.not_in_both(one, other)


def _writable(directory: Path) -> Path | None:
    """Returns a directory if files can be made there; None for the system's own."""
    try:
        with tempfile.TemporaryDirectory(dir=directory):
            return directory
    except OSError:
        return None
