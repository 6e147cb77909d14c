"""The version gate, against what is published: no number says less than what changed."""

import tempfile
from pathlib import Path

from my_datasets.comparison import gate
from my_datasets.core.manifest import Manifest
from my_datasets.core.versioning import Version
from my_datasets.errors import MyDatasetsError
from my_datasets.publishing import places
from my_datasets.publishing.index import Index, Release, State
from my_datasets.publishing.ledger import Ledger
from my_datasets.publishing.pulling import fetch
from my_datasets.publishing.record import Record, key_of
from my_datasets.publishing.stores.local import LocalStore


def check(version_dir: Path, wanted: Record, index: Index, ledger: Ledger) -> None:
    """Compares a version with the releases next to it: the one below, and the one above.

    Where a version with the same content lies beside it on this machine, or the store is a
    directory, that is read; otherwise the release is downloaded, and deleted again.

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
        if one.state is State.PUBLISHED
    }
    below = [version for version in there if version < wanted.version]
    above = [version for version in there if version > wanted.version]
    neighbours = [*below[-1:], *above[:1]]
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
                found = _there(ledger, wanted, version, there[version], Path(directory))
            (siblings / str(version)).symlink_to(found, target_is_directory=True)
        gate.check(version_dir, siblings)


def _here(version_dir: Path, version: Version, release: Release) -> Path | None:
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
    ledger: Ledger, wanted: Record, version: Version, release: Release, directory: Path
) -> Path:
    key = key_of(wanted.config, version)
    store = ledger.store.origin
    if isinstance(store, LocalStore):
        return store.path_of(places.release_of(wanted.name, key))
    target = directory / "downloaded" / str(version)
    fetch(ledger, ledger.record(wanted.name, key, release), target)
    return target


def _writable(directory: Path) -> Path | None:
    """Returns a directory if files can be made there; None for the system's own."""
    try:
        with tempfile.TemporaryDirectory(dir=directory):
            return directory
    except OSError:
        return None
