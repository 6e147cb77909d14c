"""The layout of a store: its settings, and the index of each dataset.

Releases are where TFDS looks for them, `NAME/[CONFIG/]VERSION/FILE`. Everything else is in one
folder, whose name is not a valid dataset name. Settings and indexes are small files, replaced
atomically: a release exists from the moment its index lists it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from my_datasets.core.json_types import Json
from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionNumber
from my_datasets.metadata.layout import DEFAULT_CONFIG
from my_datasets.publishing.model.record import Record, Sha256, parse_key
from my_datasets.publishing.model.signed_json import KeyChange, Signature
from my_datasets.storage.json_files import convert_json
from my_datasets.storage.store import MARK

# Maximum size of an index; a release takes 400 bytes, and an event 200.
MOST_INDEX_BYTES = 64 << 20
FORMAT = 1
# A serial, a size or a count.
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class ReleaseState(StrEnum):
    """The state of a release.

    `PLACING`: all its bytes are in the store and are being moved to their final place; no other
      publisher
    can publish this version. `DELETED`: its files are gone; the version cannot be used again.
    """

    PLACING = "placing"
    PUBLISHED = "published"
    YANKED = "yanked"
    DELETED = "deleted"


@dataclass(frozen=True)
class Release:
    """The entry of a release in an index.

    Attributes:
      record: `Record.identity`.
      data: `Record.identity_of_data`.
      digest: The content digest.
      published: When, in ISO 8601.
      message: Why it was yanked.
      signatures: Signatures of what `claim` returns.
    """

    state: ReleaseState
    record: Sha256
    data: Sha256
    digest: Sha256
    bytes: Number
    files: Number
    published: str
    message: str
    signatures: tuple[Signature, ...]

    @property
    def is_visible(self) -> bool:
        """Whether its files are in place."""
        return self.state in (ReleaseState.PUBLISHED, ReleaseState.YANKED)

    @classmethod
    def of(cls, record: Record) -> "Release":
        """Returns the entry of a release that is about to be placed."""
        return cls(
            ReleaseState.PLACING, record.identity, record.identity_of_data, record.digest,
            record.size, len(record.files), now(), "", (),
        )  # fmt: skip


@dataclass(frozen=True)
class Event:
    """A change of a release.

    Attributes:
      serial: The serial of the first index that has it.
      time: When, in ISO 8601, by the clock of the machine that made it.
      action: The action, such as `publish`.
      release: The key of the release.
      by: The fingerprint of the key that signed it; empty if unsigned.
    """

    serial: Number
    time: str
    action: str
    release: str
    by: str
    note: str


@dataclass(frozen=True)
class Index:
    """The releases of a dataset.

    Attributes:
      serial: Incremented by each change.
      releases: The releases by key; see `key_of`.
      log: Their history, oldest first.
      default_config: The config of references that name none.
      store: The id of the index's store; empty if an old release of this package wrote it.
      store_serial: The serial of the store's settings when this was written.
      expires: When its signatures expire, in ISO 8601; empty for never.
    """

    dataset: str
    serial: Number = 0
    releases: Mapping[str, Release] = field(default_factory=dict)
    log: tuple[Event, ...] = ()
    default_config: str | None = None
    store: str = ""
    store_serial: Number = 0
    expires: str = ""

    def with_release(
        self, key: str, release: Release, action: str, by: str = "", note: str = ""
    ) -> "Index":
        """Returns the next index, with a new entry of a release, and an event."""
        event = Event(self.serial + 1, now(), action, key, by, note)
        return replace(
            self,
            serial=self.serial + 1,
            releases={**self.releases, key: release},
            log=(*self.log, event),
        )

    def versions(self, config: str | None) -> dict[VersionNumber, Release]:
        """Returns the releases of a config, lowest version first."""
        found = {parse_key(key): one for key, one in self.releases.items()}
        mine = {version: one for (name, version), one in found.items() if name == config}
        return dict(sorted(mine.items()))

    @property
    def configs(self) -> list[str]:
        """The names of the configs that have releases, sorted."""
        return sorted({name for name, _ in map(parse_key, self.releases) if name})

    def to_json(self) -> dict[str, Json]:
        """Returns the stored form, without signatures."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Json], dataset: str) -> "Index":
        """Converts what `to_json` returned.

        Raises:
          ValueError, TypeError, KeyError: It is malformed.
        """
        if value["format"] != FORMAT or value["dataset"] != dataset:
            raise ValueError(f"an index of format {value['format']} of {value['dataset']!r:.80}")
        # Old releases of this package wrote no others.
        if missing := {"serial", "releases", "log", "default_config"} - {*value}:
            raise ValueError(f"an index without {', '.join(sorted(missing))}")
        found = convert_json(value, cls)
        for key in found.releases:
            parse_key(key)
        if found.default_config is not None:
            DatasetReference.parse(f"{dataset}/{found.default_config}")
        check_time(found.expires)
        return found


def claim(dataset: str, key: str, record: str) -> bytes:
    """Returns what a publisher signs: that the release has this record."""
    whole = {"dataset": dataset, "release": key, "record": record}
    return json.dumps(whole, sort_keys=True, separators=(",", ":")).encode("ascii")


def now() -> str:
    """Returns the current time, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def check_time(text: str) -> None:
    """Raises `ValueError` for a text that is neither empty nor an ISO 8601 time with its zone."""
    if text and datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"not a time with its zone: {text!r:.80}")


_OURS = "my-datasets"
STORE = MARK
UPLOADS = f"{_OURS}/uploads"

MOST_SETTINGS_BYTES = 16 << 20
FORMAT_OF_SETTINGS = 1
_LONGEST_NAME = 200


def index_of(dataset: str) -> str:
    """Returns the path of a dataset's index."""
    return f"{_OURS}/index/{dataset}.json"


def release_of(dataset: str, key: str) -> str:
    """Returns the folder of a release."""
    return f"{dataset}/{key}"


def upload_of(dataset: str, key: str, record: str) -> str:
    """Returns the folder to which a release is uploaded before it is placed.

    It depends on the bytes: publishers of different bytes do not interfere, and the same bytes are
    not uploaded twice.
    """
    return f"{UPLOADS}/{dataset}/{key.replace('/', '-')}/{record}"


def default_config_of(dataset: str) -> str:
    """Returns the path where TFDS looks for the default config."""
    return f"{dataset}/{DEFAULT_CONFIG}"


@dataclass(frozen=True)
class Settings:
    """The settings of a store.

    Attributes:
      store: The store's id, independent of its address.
      serial: Incremented by each change.
      requires_signatures: Whether everything must be signed.
      datasets: The names of the datasets that have an index.
      names_store: Whether every index names its store; one that does not belongs to another store.
      valid_seconds: How long signatures of the store's documents are valid; 0 for ever.
      expires: When the signatures of this document expire, in ISO 8601; empty for never.
      key_changes: The added and revoked keys, oldest first.
    """

    store: str
    serial: Number = 0
    requires_signatures: bool = False
    datasets: tuple[str, ...] = ()
    names_store: bool = False
    valid_seconds: Number = 0
    expires: str = ""
    key_changes: tuple[KeyChange, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Returns the stored form, without signatures."""
        return {"format": FORMAT_OF_SETTINGS, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> "Settings":
        """Converts what `to_json` returned.

        Raises:
          ValueError, TypeError, KeyError: It is malformed.
        """
        if value["format"] != FORMAT_OF_SETTINGS:
            raise ValueError(f"settings of format {value['format']!r:.80}")
        # Old releases of this package wrote no others.
        if missing := {"serial", "requires_signatures", "datasets"} - {*value}:
            raise ValueError(f"settings without {', '.join(sorted(missing))}")
        found = convert_json(value, cls)
        for name in found.datasets:
            if DatasetReference.parse(name).name != name or len(name) > _LONGEST_NAME:
                raise ValueError(f"not the name of a dataset: {name!r:.80}")
        check_time(found.expires)
        return found
