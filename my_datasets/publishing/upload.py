"""Uploads the missing files of a version, and commits it as a release.

This can be interrupted at any point, and completed by anyone who may write to the store.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from my_datasets.core.json_types import Json
from my_datasets.errors import (
    AlreadyInStoreError,
    CorruptReleaseError,
    NotInStoreError,
    PublishError,
    ReleaseConflictError,
)
from my_datasets.metadata.layout import METADATA_FILES, default_config
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model import record, store_layout
from my_datasets.publishing.model.record import Record, ReleasedFile
from my_datasets.publishing.model.store_layout import Index, Release, ReleaseState
from my_datasets.publishing.transfer import Transfer, TransferProgress, partition
from my_datasets.storage.backends.local import LocalStore
from my_datasets.storage.store import OnBytes, Store, ignore_bytes

# Moved last, because TFDS takes a directory for a dataset once it has features.json.
LAST = tuple(sorted(METADATA_FILES))

_SHOWN = 5


def finalize(client: CatalogClient, dataset: str, key: str) -> Index:
    """Moves a release in state `PLACING` to its final place, and makes it visible.

    Raises:
      CorruptReleaseError: Files of the release are missing from the store.
    """
    index = client.index(dataset)
    found = index.releases[key]
    if found.state is not ReleaseState.PLACING:
        return index
    source = store_layout.upload_of(dataset, key, found.record)
    target = store_layout.release_of(dataset, key)
    try:
        wanted = client.record(dataset, key, found, source)
    except NotInStoreError:
        wanted = client.record(dataset, key, found)
    _refuse_others(client.store, wanted, target)
    client.store.move(source, target, LAST)
    missing = missing_files(client.store, wanted)
    if missing:
        raise CorruptReleaseError(
            f"{dataset}:{key} cannot be completed in {client.store.url}.",
            f"Missing, or of another size: {', '.join(missing[:5])}",
            fix="publish the same version again to upload missing files; first delete files of "
            f"another size in {target}",
        )

    def published(now: Index) -> Index:
        state = now.releases[key]
        if state.state is not ReleaseState.PLACING:
            return now
        return now.with_release(
            key, replace(state, state=ReleaseState.PUBLISHED), "placed", by=client.by
        )

    return client.change(dataset, published)


def is_same(store: Store, path: str, one: ReleasedFile, on_bytes: OnBytes | None = None) -> bool:
    """Returns whether a file in a store has the content of a released file.

    Without `on_bytes`, the file is read only if the store does not know its SHA-256.
    """
    stored = store.stat(path)
    if stored.bytes != one.bytes:
        return False
    if stored.sha256 is not None and on_bytes is None:
        return stored.sha256 == one.sha256
    found = hashlib.sha256()
    for block in store.read(path):
        found.update(block)
        (on_bytes or ignore_bytes)(len(block))
    return found.hexdigest() == one.sha256


def _refuse_others(store: Store, wanted: Record, folder: str) -> None:
    """Checks that files at the final place belong to the release, from an interrupted move."""
    files = {one.name: one for one in wanted.files}
    files[record.FILE_NAME] = ReleasedFile(record.FILE_NAME, len(wanted.data), wanted.identity)
    for existing in list(store.list(folder)):
        one = files.get(existing.path.removeprefix(f"{folder}/"))
        if one is None or not is_same(store, existing.path, one):
            raise CorruptReleaseError(
                f"{existing.path} in {store.url} does not belong to the release.",
                fix="delete it there, and run the command again",
            )


def missing_files(store: Store, wanted: Record) -> list[str]:
    """Returns the names of a release's files that are missing or have another size."""
    folder = store_layout.release_of(wanted.name, wanted.key)
    sizes = {one.path.rpartition("/")[2]: one.bytes for one in store.list(folder)}
    expected = {one.name: one.bytes for one in wanted.files} | {record.FILE_NAME: len(wanted.data)}
    return sorted(name for name, size in expected.items() if sizes.get(name) != size)


class Outcome(StrEnum):
    """The outcome of `publish`."""

    PUBLISHED = "published"
    ALREADY = "already published"
    WOULD = "would be published"


@dataclass(frozen=True)
class Published:
    """The result of `publish`.

    Attributes:
      name: The full name of the release.
      store: The address of the store.
      outcome: The outcome.
      identity: The SHA-256 of the record.
      digest: The content digest.
      bytes: The total size of the files.
      files: The number of files.
      uploaded: The bytes that were uploaded, or would be; existing files are not uploaded again.
      note: A remark.
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

    def to_json(self) -> dict[str, Json]:
        """Returns a form for scripts."""
        return {**vars(self), "outcome": self.outcome.value}


class ReleaseUpload:
    """The publication of one version."""

    def __init__(
        self, version_dir: Path, wanted: Record, client: CatalogClient, workers: int,
        report: Callable[[TransferProgress], None], *, reads_back: bool,
    ) -> None:  # fmt: skip
        self._dir = version_dir
        self._record = wanted
        self._store = client.store
        self._client = client
        self._workers = workers
        self._report = report
        self._reads_back = reads_back
        self._damaged: set[str] = set()  # names of published files to replace
        self._upload_folder = store_layout.upload_of(wanted.name, wanted.key, wanted.identity)
        self._folder = store_layout.release_of(wanted.name, wanted.key)

    def settled(self, found: Release) -> Published | None:
        """Returns the result if the version is published already; None if work is left.

        Raises:
          ReleaseConflictError: It is published, or being published, with other bytes.
        """
        mine = self._record
        if found.record == mine.identity:
            is_whole = False
            if found.state is ReleaseState.PUBLISHED and not missing_files(self._store, mine):
                self._damaged = self._read_back()
                is_whole = not self._damaged
            if is_whole:
                return self.published(Outcome.ALREADY, 0, "the same bytes")
            if found.state in (ReleaseState.PUBLISHED, ReleaseState.PLACING):
                return None
        elif found.state is ReleaseState.PLACING:
            # Complete the other publication, whose publisher may have died.
            finalize(self._client, mine.name, mine.key)
        is_valid = found.state in (ReleaseState.PUBLISHED, ReleaseState.PLACING)
        if is_valid and found.data == mine.identity_of_data:
            note = "the same data; only build details in the manifest differ"
            return self.published(Outcome.ALREADY, 0, note)
        raise self._conflict(found)

    def _read_back(self) -> set[str]:
        """Returns the names of damaged files in the store; none without read-back."""
        if not self._reads_back:
            return set()
        transfer = Transfer("reading back", self._record.size, self._report)
        _, damaged = partition(
            lambda one: is_same(self._store, f"{self._folder}/{one.name}", one, transfer),
            self._record.files, self._workers,
        )  # fmt: skip
        return {one.name for one in damaged}

    def check_here(self, files: Sequence[ReleasedFile]) -> None:
        """Raises a `PublishError` if local files that are not uploaded differ from the record."""
        if not files:
            return
        transfer = Transfer("verifying", sum(one.bytes for one in files), self._report)
        local = LocalStore(self._dir)
        _, other = partition(
            lambda one: is_same(local, one.name, one, transfer), files, self._workers
        )
        if other:
            more = [f"... and {len(other) - _SHOWN} more"] if len(other) > _SHOWN else []
            raise PublishError(
                f"{self._dir} does not match its manifest, unlike {self._store.url}.",
                *(f"{one.name}: changed since it was built" for one in other[:_SHOWN]),
                *more,
                fix=f"see all issues with my-datasets verify {self._dir}; rebuild or pull the "
                "version again",
            )

    def missing(self) -> list[ReleasedFile]:
        """Returns the files that are not in the store yet, largest first."""
        uploaded = {one.path: one.bytes for one in self._store.list(self._upload_folder)}
        placed = {one.path for one in self._store.list(self._folder)}

        def is_stored(one: ReleasedFile) -> bool:
            # The folder is specific to these bytes, and its files were verified.
            if uploaded.get(f"{self._upload_folder}/{one.name}") == one.bytes:
                return True
            path = f"{self._folder}/{one.name}"
            is_good = path in placed and one.name not in self._damaged
            return is_good and is_same(self._store, path, one)

        files = sorted(self._record.files, key=lambda one: -one.bytes)
        return partition(is_stored, files, self._workers)[1]

    def upload(self, missing: list[ReleasedFile]) -> None:
        """Uploads files and the record to the upload folder."""
        transfer = Transfer("uploading", sum(one.bytes for one in missing), self._report)
        transfer.each(lambda one: self._upload(one, transfer), missing, self._workers)
        with suppress(AlreadyInStoreError):
            self._store.create(
                f"{self._upload_folder}/{record.FILE_NAME}", self._record.data,
                self._record.identity,
            )  # fmt: skip

    def commit(self, uploaded: int, note: str) -> Published:
        """Makes the version a release.

        Raises:
          ReleaseConflictError: Another publisher was first, with other bytes.
        """
        mine = self._record
        is_first = False
        default = default_config(self._dir.resolve().parents[1]) if mine.config else None

        def claimed(index: Index) -> Index:
            nonlocal is_first
            found = index.releases.get(mine.key)
            is_first = found is None
            if found is not None:
                return index
            self._refuse_others()
            release = self._client.signed(mine.name, mine.key, Release.of(mine))
            if index.default_config is None and default is not None:
                index = replace(index, default_config=default)
            return index.with_release(mine.key, release, "publish", by=self._client.by, note=note)

        found = self._client.change(mine.name, claimed).releases[mine.key]
        is_withdrawn = found.state in (ReleaseState.YANKED, ReleaseState.DELETED)
        if found.record != mine.identity or is_withdrawn:
            self._discard_upload()
            done = self.settled(found)
            return done or self.published(Outcome.ALREADY, uploaded)
        if default is not None:
            data = json.dumps({"default_config_name": default}).encode()
            path = store_layout.default_config_of(mine.name)
            with suppress(AlreadyInStoreError):
                self._store.create(path, data, hashlib.sha256(data).hexdigest())
        was_visible = found.state is ReleaseState.PUBLISHED
        if was_visible:
            for name in self._damaged:
                self._store.delete(f"{self._folder}/{name}")
            self._store.move(self._upload_folder, self._folder, LAST)
        else:
            finalize(self._client, mine.name, mine.key)
        self._discard_upload()
        damaged = self._read_back()
        if damaged:
            raise CorruptReleaseError(
                f"{self._store.url} does not return what was written to it.",
                f"In {self._folder}: {', '.join(sorted(damaged)[:_SHOWN])}",
                fix="check the store's disks; then publish again with --read-back",
            )
        if is_first:
            return self.published(Outcome.PUBLISHED, uploaded)
        note = "the same bytes" if not uploaded or not was_visible else "files were restored"
        return self.published(Outcome.ALREADY if was_visible else Outcome.PUBLISHED, uploaded, note)

    def published(self, outcome: Outcome, uploaded: int, note: str = "") -> Published:
        """Returns the result."""
        mine = self._record
        return Published(
            mine.full_name, self._store.url, outcome, mine.identity,
            mine.digest, mine.size, len(mine.files), uploaded, note,
        )  # fmt: skip

    def _upload(self, one: ReleasedFile, transfer: Transfer) -> None:
        path = f"{self._upload_folder}/{one.name}"
        for is_last in (False, False, True):
            try:
                self._store.create(path, self._dir / one.name, one.sha256, transfer)
                return
            except AlreadyInStoreError:
                if is_last:
                    raise
            # NotInStoreError: another publisher of the same bytes has placed it.
            with suppress(NotInStoreError):
                if is_same(self._store, path, one):
                    transfer(one.bytes)
                    return
                # It is damaged.
                self._store.delete(path)

    def _refuse_others(self) -> None:
        """Checks that the final folder is empty."""
        found = [one.path for one in self._store.list(self._folder)]
        if found:
            raise ReleaseConflictError(
                f"{self._folder} in {self._store.url} exists and is not a release.",
                f"Found: {', '.join(found[:_SHOWN])}",
                fix="move it elsewhere, and publish it from there",
            )

    def _discard_upload(self) -> None:
        for one in self._store.list(self._upload_folder):
            self._store.delete(one.path)

    def _conflict(self, found: Release) -> ReleaseConflictError:
        mine = self._record
        what = {
            ReleaseState.YANKED: f"was published and yanked: {found.message}",
            ReleaseState.DELETED: "was published and deleted",
        }.get(found.state, "is published with other bytes")
        return ReleaseConflictError(
            f"{mine.name}:{mine.key} {what}.",
            f"In {self._store.url}, {found.published}: record {found.record[:16]}, digest "
            f"{found.digest[:16]}",
            f"Here: record {mine.identity[:16]}, digest {mine.digest[:16]}",
            fix="build the data under a higher version: a published version never changes"
            + ("; or my-datasets yank --undo" if found.state is ReleaseState.YANKED else ""),
        )
