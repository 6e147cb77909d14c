"""`publish`: a prepared version becomes a release, by one atomic step, for good."""

import os
from collections.abc import Callable
from pathlib import Path

from my_datasets.errors import ChecksumError, PublishError, explain
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing.admin import releases
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.model.rollback_state import Memory
from my_datasets.publishing.model.signed_json import Signs, Trusts
from my_datasets.publishing.publish import release_gate
from my_datasets.publishing.publish.upload import Outcome, Published, Releasing
from my_datasets.publishing.transfer import TransferProgress
from my_datasets.resolving import resolve_prepared
from my_datasets.resolving.blocked import reason_in_metadata
from my_datasets.resolving.resolve_prepared import Reference
from my_datasets.storage.opening import open_store
from my_datasets.storage.retry import RetryingStore, RetryPolicy
from my_datasets.storage.store import Store, read_only
from my_datasets.verification.report import Level
from my_datasets.verification.verifier import verify

_AT_ONCE = 8
_SHOWN = 5


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
    memory: Memory | None = None,
    report: Callable[[TransferProgress], None] = lambda _: None,
) -> Published:
    """Makes a prepared version a release: verified, whole, and never changed again.

    Killed at any instant, nothing is visible, or all; the next call goes on where it was. Of
    several that publish other bytes under one version, one succeeds.

    Args:
      reference: For example `digits:1.0.0`; or the directory of a version, or what stands for it.
      store: Where to, as `open_store` takes it.
      data_dir: Where prepared data is; TFDS's default if None.
      level: How much is verified, `BYTES` while they are uploaded, `DEEP` before.
      version_gate: Whether a version is refused whose number says less than what changed since
        the release before it.
      dry_run: Only look what would be done; nothing is written.
      signer: By which key it is signed; a store may require it.
      keys: Whose signatures count; None for the signer's own, where the store requires them.
      note: For the store's log.
      read_back: Whether every byte is read again where it lies, and compared; of a release that is
        published already, too: what is damaged there is put back.
      valid_for: For how many seconds signatures of the store's documents count from now on, each
        time they are made; 0 for ever. None to leave it as the store says.
      workers: Files that are uploaded at the same time.
      patience: How long the store is given where it does not answer well.
      memory: What this machine has seen of stores.
      report: Told how far it is.

    Returns:
      What was done.

    Raises:
      NotPreparedError: There is no such version here.
      PublishError: It is damaged, a sample, or has no manifest.
      VersionGateError: Its number says less than what changed.
      ReleaseConflictError: Other bytes are published under this version.
      CorruptReleaseError: The store does not give what was written to it.
      StoreError: The store cannot be used, or does not answer.
      SignatureError: The store wants signatures, or has wrong ones.
    """
    version_dir = resolve_prepared.version_dir(reference, data_dir)
    wanted = Record.of(version_dir)
    _refuse_unfit(version_dir)
    patient = RetryingStore(open_store(store), patience)
    if not patient.is_writable:
        raise read_only(patient.url)
    ledger = CatalogClient(patient, keys=keys, signer=signer, memory=memory)
    job = Releasing(version_dir, wanted, patient, ledger, workers, report, reads_back=read_back)
    index = ledger.index(wanted.name)
    found = index.releases.get(wanted.key)
    if found is not None and (done := job.settled(found)):
        job.check_here(wanted.files)
        if level is Level.DEEP:
            _verify(version_dir, level, report)
        if valid_for is not None and not dry_run:
            releases.set_validity(ledger, int(valid_for))
        return done
    # The stores hash every byte on its way, so nothing need be read twice for that.
    on_the_way = level is Level.BYTES and not dry_run
    _verify(version_dir, Level.FAST if on_the_way else level, report)
    if version_gate and found is None:
        release_gate.check(version_dir, wanted, index, ledger)
    missing = job.missing()
    if on_the_way:
        job.check_here([one for one in wanted.files if one not in missing])
    if dry_run:
        return job.published(Outcome.WOULD, sum(one.bytes for one in missing))
    try:
        job.upload(missing)
    except ChecksumError:
        _verify(version_dir, Level.BYTES, report)  # which tells what is wrong, and where
        raise
    done = job.commit(sum(one.bytes for one in missing), note)
    if valid_for is not None:
        releases.set_validity(ledger, int(valid_for))
    return done


def _verify(version_dir: Path, level: Level, report: Callable[[TransferProgress], None]) -> None:
    found = verify(
        version_dir,
        level=level,
        report=lambda looked: report(TransferProgress("verifying", looked.done, looked.total)),
    )
    if not found.is_good:
        raise PublishError(
            explain(
                f"{version_dir} is not what it should be, and cannot be published.",
                *(f"{one.node}: {one.problem}" for one in found.issues[:_SHOWN]),
                fix=f"my-datasets verify {version_dir} says all of it; build the version anew",
            )
        )


def _refuse_unfit(version_dir: Path) -> None:
    blocked = reason_in_metadata(version_dir)
    if blocked is not None:
        raise PublishError(
            explain(
                f"{version_dir} must not be used: {blocked}",
                fix="publish another version; one that is published is withdrawn by my-datasets "
                "yank",
            )
        )
    made = Manifest.read(version_dir)
    limits = [name for name in (made.options if made else {}) if name != "on_error"]
    if limits:
        raise PublishError(
            explain(
                f"{version_dir} is not the whole dataset.",
                f"It was made with {', '.join(limits)}",
                fix="build or pull all of it, then publish",
            )
        )
