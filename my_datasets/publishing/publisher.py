"""`publish`: a prepared version becomes a release, by one atomic step, for good."""

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from my_datasets.core.blocked import reason_in_metadata
from my_datasets.core.manifest import Manifest
from my_datasets.errors import AlreadyInStoreError, PublishError, ReleaseConflictError, explain
from my_datasets.publishing import places, record, release_gate
from my_datasets.publishing.index import Index, Release, State
from my_datasets.publishing.ledger import Ledger
from my_datasets.publishing.memory import Memory
from my_datasets.publishing.opening import open_store
from my_datasets.publishing.patience import Patience, PatientStore
from my_datasets.publishing.placing import LAST, is_same, lacking, place
from my_datasets.publishing.record import Record, ReleasedFile
from my_datasets.publishing.sealing import Signs, Trusts
from my_datasets.publishing.store import Store, read_only
from my_datasets.publishing.transfer import Progress, Transfer
from my_datasets.verification import finding
from my_datasets.verification.report import Level
from my_datasets.verification.verifier import verify

_AT_ONCE = 8
_SHOWN = 5


class Outcome(StrEnum):
    """What became of a version that was to be published."""

    PUBLISHED = "published"
    ALREADY = "already published"
    WOULD = "would be published"


@dataclass(frozen=True)
class Published:
    """What was done.

    Attributes:
      name: The release's full name.
      store: Where it is.
      outcome: What became of it.
      identity: The SHA-256 of its record.
      digest: That of its content.
      bytes: The size of its files.
      files: Their number.
      uploaded: Bytes that went to the store, or would: what was there is not uploaded again.
      note: What else is to be said.
    """

    name: str
    store: str
    outcome: Outcome
    identity: str
    digest: str
    bytes: int
    files: int
    uploaded: int
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
        return {**vars(self), "outcome": self.outcome.value}


def publish(
    reference: str,
    store: str | os.PathLike[str] | Store,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    level: Level = Level.BYTES,
    version_gate: bool = True,
    dry_run: bool = False,
    signer: Signs | None = None,
    keys: Trusts | None = None,
    note: str = "",
    workers: int = _AT_ONCE,
    patience: Patience | None = None,
    memory: Memory | None = None,
    report: Callable[[Progress], None] = lambda _: None,
) -> Published:
    """Makes a prepared version a release: verified, whole, and never changed again.

    Killed at any instant, nothing is visible, or all; the next call goes on where it was. Of
    several that publish other bytes under one version, one succeeds.

    Args:
      reference: For example `digits:1.0.0`; or the directory of a version.
      store: Where to, as `open_store` takes it.
      data_dir: Where prepared data is; TFDS's default if None.
      level: How much is verified before.
      version_gate: Whether a version is refused whose number says less than what changed since
        the release before it.
      dry_run: Only look what would be done; nothing is written.
      signer: By which key it is signed; a store may require it.
      keys: Whose signatures count; None for the signer's own, where the store requires them.
      note: For the store's log.
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
      StoreError: The store cannot be used, or does not answer.
      SignatureError: The store wants signatures, or has wrong ones.
    """
    version_dir = finding.version_dir(reference, data_dir)
    wanted = Record.of(version_dir)
    _refuse_unfit(version_dir)
    patient = PatientStore(open_store(store), patience)
    if not patient.is_writable:
        raise read_only(patient.url)
    ledger = Ledger(patient, keys=keys, signer=signer, memory=memory)
    job = _Job(version_dir, wanted, patient, ledger, workers, report)
    index = ledger.index(wanted.name)
    found = index.releases.get(wanted.key)
    if found is not None and (done := job.settled(found)):
        return done
    _verify(version_dir, level, report)
    if version_gate and found is None:
        release_gate.check(version_dir, wanted, index, ledger)
    missing = job.missing()
    if dry_run:
        return job.published(Outcome.WOULD, sum(one.bytes for one in missing))
    job.upload(missing)
    return job.commit(sum(one.bytes for one in missing), note)


class _Job:
    """One version that is published."""

    def __init__(
        self, version_dir: Path, wanted: Record, store: PatientStore, ledger: Ledger, workers: int,
        report: Callable[[Progress], None],
    ) -> None:  # fmt: skip
        self._dir = version_dir
        self._record = wanted
        self._store = store
        self._ledger = ledger
        self._workers = workers
        self._report = report
        self._upload_folder = places.upload_of(wanted.name, wanted.key, wanted.identity)
        self._folder = places.release_of(wanted.name, wanted.key)

    def settled(self, found: Release) -> Published | None:
        """Returns what there is to say where the version is published; None if it must go on.

        Raises:
          ReleaseConflictError: It is published, or about to be, with other bytes.
        """
        mine = self._record
        if found.record == mine.identity:
            if found.state is State.PUBLISHED and not lacking(self._store, mine):
                return self.published(Outcome.ALREADY, 0, "the same bytes")
            if found.state in (State.PUBLISHED, State.PLACING):
                return None
        elif found.state is State.PLACING:
            # Whoever began is helped, so that nobody waits for one that died.
            place(self._ledger, mine.name, mine.key)
        if found.data == mine.identity_of_data and found.state in (State.PUBLISHED, State.PLACING):
            note = "the same data; only what the manifest says of its making differs"
            return self.published(Outcome.ALREADY, 0, note)
        raise self._conflict(found)

    def missing(self) -> list[ReleasedFile]:
        """Returns the files that are not in the store yet, the largest first."""
        there = {one.path for one in self._store.list(self._upload_folder)}
        placed = {one.path for one in self._store.list(self._folder)}

        def is_there(one: ReleasedFile) -> bool:
            for folder, paths in ((self._upload_folder, there), (self._folder, placed)):
                path = f"{folder}/{one.name}"
                if path in paths and is_same(self._store, path, one):
                    return True
            return False

        files = sorted(self._record.files, key=lambda one: -one.bytes)
        with ThreadPoolExecutor(self._workers) as pool:
            found = list(pool.map(is_there, files))
        return [one for one, known in zip(files, found, strict=True) if not known]

    def upload(self, missing: list[ReleasedFile]) -> None:
        """Brings files into the store, where nobody looks for them."""
        transfer = Transfer("uploading", sum(one.bytes for one in missing), self._report)
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="my_datasets_upload")
        try:
            futures = [pool.submit(self._upload, one, transfer) for one in missing]
            for future in as_completed(futures):
                future.result()
        except BaseException:
            transfer.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        with suppress(AlreadyInStoreError):
            self._store.create(
                f"{self._upload_folder}/{record.FILE_NAME}", self._record.data,
                self._record.identity,
            )  # fmt: skip

    def commit(self, uploaded: int, note: str) -> Published:
        """Makes the version a release.

        Raises:
          ReleaseConflictError: Somebody else was first, with other bytes.
        """
        mine = self._record
        is_first = False
        default = _default_config(self._dir, mine)

        def claimed(index: Index) -> Index:
            nonlocal is_first
            found = index.releases.get(mine.key)
            is_first = found is None
            if found is not None:
                return index
            self._refuse_others()
            release = self._ledger.signed(mine.name, mine.key, Release.of(mine))
            if index.default_config is None and default is not None:
                index = replace(index, default_config=default)
            return index.with_release(mine.key, release, "publish", by=self._ledger.by, note=note)

        found = self._ledger.change(mine.name, claimed).releases[mine.key]
        if found.record != mine.identity:
            self._discard_upload()
            done = self.settled(found)
            return done or self.published(Outcome.ALREADY, uploaded)
        if default is not None:
            data = json.dumps({"default_config_name": default}).encode()
            path = places.default_config_of(mine.name)
            with suppress(AlreadyInStoreError):
                self._store.create(path, data, hashlib.sha256(data).hexdigest())
        was_visible = found.state is State.PUBLISHED
        if was_visible:
            self._put_back()
        else:
            place(self._ledger, mine.name, mine.key)
        self._discard_upload()
        if is_first:
            return self.published(Outcome.PUBLISHED, uploaded)
        note = "the same bytes" if not uploaded or not was_visible else "files were put back"
        return self.published(Outcome.ALREADY if was_visible else Outcome.PUBLISHED, uploaded, note)

    def published(self, outcome: Outcome, uploaded: int, note: str = "") -> Published:
        """Returns what was done."""
        mine = self._record
        config = f"/{mine.config}" if mine.config else ""
        return Published(
            f"{mine.name}{config}:{mine.version}", self._store.url, outcome, mine.identity,
            mine.digest, mine.size, len(mine.files), uploaded, note,
        )  # fmt: skip

    def _upload(self, one: ReleasedFile, transfer: Transfer) -> None:
        path = f"{self._upload_folder}/{one.name}"
        source = self._dir / one.name
        try:
            self._store.create(path, source, one.sha256, transfer)
        except AlreadyInStoreError:
            # By somebody who publishes the same; or damaged, and of use to nobody.
            if not is_same(self._store, path, one):
                self._store.delete(path)
                self._store.create(path, source, one.sha256, transfer)
            else:
                transfer(one.bytes)

    def _refuse_others(self) -> None:
        """Sees that there is nothing where the release is to lie."""
        found = [one.path for one in self._store.list(self._folder)]
        if found:
            raise ReleaseConflictError(
                explain(
                    f"There is something at {self._folder} in {self._store.url} that is no "
                    "release.",
                    f"Found: {', '.join(found[:_SHOWN])}",
                    mend="move it away, and publish it from there, so that it is verified",
                )
            )

    def _put_back(self) -> None:
        """Completes a release of which files were lost."""
        self._store.move(self._upload_folder, self._folder, LAST)

    def _discard_upload(self) -> None:
        """Deletes what lies where releases lie before they are placed."""
        for one in self._store.list(self._upload_folder):
            self._store.delete(one.path)

    def _conflict(self, found: Release) -> ReleaseConflictError:
        mine = self._record
        what = {
            State.YANKED: f"was published, and withdrawn: {found.message}",
            State.DELETED: "was published, and deleted",
        }.get(found.state, "is published with other bytes")
        return ReleaseConflictError(
            explain(
                f"{mine.name}:{mine.key} {what}.",
                f"In {self._store.url}, {found.published}: record {found.record[:16]}, digest "
                f"{found.digest[:16]}",
                f"Here: record {mine.identity[:16]}, digest {mine.digest[:16]}",
                mend="a published version is never changed: build the data under a higher version"
                + ("; or my-datasets yank --undo" if found.state is State.YANKED else ""),
            )
        )


def _verify(version_dir: Path, level: Level, report: Callable[[Progress], None]) -> None:
    found = verify(
        version_dir,
        level=level,
        report=lambda looked: report(Progress("verifying", looked.done, looked.total)),
    )
    if not found.is_good:
        raise PublishError(
            explain(
                f"{version_dir} is not what it should be, and cannot be published.",
                *(f"{one.node}: {one.problem}" for one in found.issues[:_SHOWN]),
                mend=f"my-datasets verify {version_dir} says all of it; build the version anew",
            )
        )


def _refuse_unfit(version_dir: Path) -> None:
    blocked = reason_in_metadata(version_dir)
    if blocked is not None:
        raise PublishError(
            explain(
                f"{version_dir} must not be used: {blocked}",
                mend="publish another version; one that is published is withdrawn by my-datasets "
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
                mend="build or pull all of it, then publish",
            )
        )


def _default_config(version_dir: Path, wanted: Record) -> str | None:
    """Returns the config that is meant if none is named, as TFDS noted it beside the configs."""
    if wanted.config is None:
        return None
    path = version_dir.resolve().parents[1] / ".config" / "metadata.json"
    try:
        found = json.loads(path.read_bytes())["default_config_name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found) if found else None
