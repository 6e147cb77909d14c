"""`publish`: makes a prepared version an immutable release, atomically.

The version gate refuses a version number that understates what changed since the published
versions.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from my_datasets.comparison import diff
from my_datasets.core import version as version_rules
from my_datasets.core.version import Bump
from my_datasets.errors import ChecksumError, MyDatasetsError, PublishError
from my_datasets.metadata import feature_changes
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.publishing import admin
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import store_layout
from my_datasets.publishing.model.record import FIRST, Record, key_of
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Signs, Trusts
from my_datasets.publishing.model.store_layout import Index, Release, ReleaseState
from my_datasets.publishing.transfer import TransferProgress, fetch
from my_datasets.publishing.upload import Outcome, Published, ReleaseUpload
from my_datasets.resolving import resolver
from my_datasets.resolving.resolver import Reference
from my_datasets.storage.backends import open_store
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.retry import RetryingStore, RetryPolicy
from my_datasets.storage.store import Store, read_only
from my_datasets.verification.verifier import Level, verify

_AT_ONCE = 8
_SHOWN = 5


def check_release_gate(
    version_dir: Path, wanted: Record, index: Index, client: CatalogClient
) -> None:
    """Compares a version with the next lower and the next higher release.

    Reads the release from a directory store, or from a version with the same content on this
    machine. Otherwise downloads it temporarily: only its metadata, if that proves what changed.

    Raises:
      VersionGateError: A version number was not raised enough for what changed.
    """
    published = {
        version: one
        for version, one in index.versions(wanted.config).items()
        if one.state is ReleaseState.PUBLISHED
    }
    below = [version for version in published if version < wanted.version]
    above = [version for version in published if version > wanted.version]
    # A new major version permits any change.
    neighbours = [
        one
        for one in (*below[-1:], *above[:1])
        if version_rules.between(*sorted((one, wanted.version))) is not Bump.MAJOR
    ]
    if not neighbours:
        return
    # On the same file system, because it has room for data.
    with tempfile.TemporaryDirectory(
        prefix=f".{version_dir.name}.gate-", dir=_writable(version_dir.parent)
    ) as directory:
        siblings = Path(directory) / version_dir.resolve().parent.name
        siblings.mkdir()
        for version in neighbours:
            release, target = published[version], Path(directory) / "downloaded" / str(version)
            found = version_dir.resolve().parent / str(version)
            if not _has_content_of(release, found):
                key = key_of(wanted.config, version)
                found = _downloaded_version(client, wanted.name, key, release, version_dir, target)
            (siblings / str(version)).symlink_to(found, target_is_directory=True)
        diff.check_version_gate(version_dir, siblings)


def _has_content_of(release: Release, version_dir: Path) -> bool:
    try:
        made = Manifest.read(version_dir)
    except (MyDatasetsError, OSError):
        return False
    return made is not None and made.content is not None and made.content.digest == release.digest


def _downloaded_version(
    client: CatalogClient, dataset: str, key: str, release: Release, new: Path, target: Path
) -> Path:
    """Returns a directory with enough of a release to compare it with `new`."""
    store = client.store.origin
    if isinstance(store, LocalStore):
        return store.path_of(store_layout.release_of(dataset, key))
    found = client.record(dataset, key, release)
    fetch(client, found, target, [one for one in found.files if one.name in FIRST])
    shards = {one.name for some in Declared.read(target).splits.values() for one in some}
    # Without the sidecars of shards, which are `.npy` files.
    metadata = [
        one for one in found.files if one.name not in shards and not one.name.endswith(".npy")
    ]
    fetch(client, found, target, metadata)
    if not _are_proved_same(target, new):
        fetch(client, found, target)
    return target


def _are_proved_same(one: Path, other: Path) -> bool:
    """Returns whether manifests prove that common splits have the same examples."""
    sides = VersionMetadata(one), VersionMetadata(other)
    made = [side.manifest for side in sides]
    splits = [each.content.splits if each and each.content else {} for each in made]
    common = splits[0].keys() & splits[1].keys()
    is_same = all(splits[0][name].ordered == splits[1][name].ordered for name in common)
    return bool(common) and is_same and not feature_changes.not_in_both(*sides)


def _writable(directory: Path) -> Path | None:
    """Returns a directory if it is writable; otherwise None, for the system's default."""
    try:
        with tempfile.TemporaryDirectory(dir=directory):
            return directory
    except OSError:
        return None


def publish(
    reference: Reference,
    store: str | os.PathLike[str] | Store,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    level: Level = Level.BYTES,
    version_gate: bool = True,
    dry_run: bool = False,
    signer: Signs | None = None,
    keys: Trusts | None = None,
    note: str = "",
    read_back: bool = False,
    valid_for: float | None = None,
    workers: int = _AT_ONCE,
    patience: RetryPolicy | None = None,
    memory: RollbackState | None = None,
    report: Callable[[TransferProgress], None] = lambda _: None,
) -> Published:
    """Verifies a prepared version and makes it an immutable release.

    A killed call leaves either nothing or a whole release visible, and the next call resumes. If
    several publishers publish different bytes under one version, one succeeds.

    Args:
      reference: For example `digits:1.0.0`; or the directory of a version, or an object for one.
      store: The store, as for `open_store`.
      data_dir: The data directory; TFDS's default if None.
      level: How thoroughly to verify: `BYTES` during the upload, `DEEP` before it.
      version_gate: Whether to refuse a version number that was not raised enough for what changed
        since the previous release.
      dry_run: Only report what would be done, and write nothing.
      signer: The key to sign with; a store may require one.
      keys: The trusted keys; None for the signer's own, if the store requires signatures.
      note: A comment for the store's log.
      read_back: Whether to read every byte back from the store. Damaged files of an existing
        release are replaced.
      valid_for: Seconds for which signatures of the store's documents are valid from each signing;
        0 for ever, None to leave it unchanged.
      workers: The number of parallel uploads.
      patience: How often to retry when the store fails.
      memory: What this machine has seen of stores.
      report: Called with the progress.

    Raises:
      NotPreparedError: There is no such version on this machine.
      PublishError: It is damaged, incomplete, or has no manifest.
      VersionGateError: Its version number was not raised enough for what changed.
      ReleaseConflictError: Other bytes are published under this version.
      CorruptReleaseError: The store does not return what was written to it.
      StoreError: The store cannot be used, or does not respond.
      SignatureError: The store requires a signature, or has invalid ones.
    """
    version_dir = resolver.version_dir(reference, data_dir)
    metadata = VersionMetadata(version_dir)
    wanted = Record.of(metadata)
    _refuse_unfit(metadata)
    patient = RetryingStore(open_store(store), patience)
    if not patient.is_writable:
        raise read_only(patient.url)
    client = CatalogClient(patient, keys=keys, signer=signer, memory=memory)
    job = ReleaseUpload(version_dir, wanted, client, workers, report, reads_back=read_back)
    index = client.index(wanted.name)
    found = index.releases.get(wanted.key)
    if found is not None and (done := job.settled(found)):
        job.check_here(wanted.files)
        if level is Level.DEEP:
            _verify(version_dir, level, report)
        if valid_for is not None and not dry_run:
            admin.set_validity(client, int(valid_for))
        return done
    # Stores hash every uploaded byte, so those need no separate pass.
    on_the_way = level is Level.BYTES and not dry_run
    _verify(version_dir, Level.FAST if on_the_way else level, report)
    if version_gate and found is None:
        check_release_gate(version_dir, wanted, index, client)
    missing = job.missing()
    if on_the_way:
        job.check_here([one for one in wanted.files if one not in missing])
    if dry_run:
        return job.published(Outcome.WOULD, sum(one.bytes for one in missing))
    try:
        job.upload(missing)
    except ChecksumError:
        _verify(version_dir, Level.BYTES, report)  # raises an error with the details
        raise
    done = job.commit(sum(one.bytes for one in missing), note)
    if valid_for is not None:
        admin.set_validity(client, int(valid_for))
    return done


def _verify(version_dir: Path, level: Level, report: Callable[[TransferProgress], None]) -> None:
    found = verify(
        version_dir,
        level=level,
        report=lambda looked: report(TransferProgress("verifying", looked.done, looked.total)),
    )
    if not found.is_good:
        raise PublishError(
            f"{version_dir} does not pass verification, and cannot be published.",
            *(f"{one.node}: {one.problem}" for one in found.issues[:_SHOWN]),
            fix=f"see all issues with my-datasets verify {version_dir}; rebuild the version",
        )


def _refuse_unfit(version: VersionMetadata) -> None:
    version_dir, blocked = version.path, version.blocked_reason
    if blocked is not None:
        raise PublishError(
            f"{version_dir} must not be used: {blocked}",
            fix="publish another version; withdraw a published one with my-datasets yank",
        )
    made = version.manifest
    limits = [name for name in (made.options if made else {}) if name != "on_error"]
    if limits:
        raise PublishError(
            f"{version_dir} is not the whole dataset.",
            f"It was made with {', '.join(limits)}",
            fix="build or pull all of it, then publish",
        )
