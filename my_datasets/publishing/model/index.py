"""The index of a dataset in a store: its releases, and all that happened to them.

One small file, replaced in one step: a release is there from the instant on in which it says so.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionNumber
from my_datasets.publishing.model.record import Record, parse_key
from my_datasets.publishing.model.signed_json import Signature

# No index is larger: a release has 400 bytes, and an event 200.
MOST_BYTES = 64 << 20
FORMAT = 1
_HEX = re.compile("[0-9a-f]{64}")


class ReleaseState(StrEnum):
    """What became of a release.

    `PLACING`: all its bytes are in the store, and are being put in their place; nobody else can
    publish this version any more. `DELETED`: its files are gone; the version is used up.
    """

    PLACING = "placing"
    PUBLISHED = "published"
    YANKED = "yanked"
    DELETED = "deleted"


@dataclass(frozen=True)
class Release:
    """A release, as an index names it.

    Attributes:
      state: What became of it.
      record: The SHA-256 of its record.
      data: That of its data only: of all files but the manifest.
      digest: That of its content.
      bytes: The size of its files.
      files: Their number.
      published: When, in ISO 8601.
      message: Why it was yanked.
      signatures: Of what `claim` returns.
    """

    state: ReleaseState
    record: str
    data: str
    digest: str
    bytes: int
    files: int
    published: str
    message: str = ""
    signatures: tuple[Signature, ...] = ()

    @property
    def is_visible(self) -> bool:
        """Whether its files are there, and are a release."""
        return self.state in (ReleaseState.PUBLISHED, ReleaseState.YANKED)

    @classmethod
    def of(cls, record: Record) -> "Release":
        """Returns the entry of a release that is to be placed."""
        return cls(
            ReleaseState.PLACING, record.identity, record.identity_of_data, record.digest,
            record.size, len(record.files), now(),
        )  # fmt: skip


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
      serial: Of the index in which it is first.
      time: When, in ISO 8601, by the clock of who did it.
      action: What was done, such as `publish`.
      release: To which release.
      by: The fingerprint of the key that signed it; empty if none did.
      note: What was said of it.
    """

    serial: int
    time: str
    action: str
    release: str
    by: str = ""
    note: str = ""


@dataclass(frozen=True)
class Index:
    """The releases of a dataset.

    Attributes:
      dataset: Its name.
      serial: Raised by each change.
      releases: By `config/version`, or the version only.
      log: What happened, oldest first.
      default_config: The config that is meant if none is named; None if there is none.
      store: The id of the store that it is an index of; empty in an index that an old release of
        this package wrote.
      store_serial: The serial of the store's own document when this was written.
      expires: Until when its signatures count, in ISO 8601; empty if for ever.
    """

    dataset: str
    serial: int = 0
    releases: Mapping[str, Release] = field(default_factory=dict)
    log: tuple[Event, ...] = ()
    default_config: str | None = None
    store: str = ""
    store_serial: int = 0
    expires: str = ""

    def with_release(
        self, key: str, release: Release, action: str, by: str = "", note: str = ""
    ) -> "Index":
        """Returns the next index, with another state of a release."""
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
        """The configs that have releases; one without a name is left out."""
        return sorted({name for name, _ in map(parse_key, self.releases) if name})

    def to_json(self) -> dict[str, Any]:
        """Returns it as it is stored, without signatures."""
        return {
            "format": FORMAT,
            "dataset": self.dataset,
            "serial": self.serial,
            "default_config": self.default_config,
            "releases": {key: asdict(one) for key, one in self.releases.items()},
            "log": [asdict(one) for one in self.log],
            "store": self.store,
            "store_serial": self.store_serial,
            "expires": self.expires,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], dataset: str) -> "Index":
        """Returns what `to_json` wrote.

        Raises:
          ValueError, TypeError, KeyError, AttributeError: It is something else.
        """
        if value["format"] != FORMAT or value["dataset"] != dataset:
            raise ValueError(f"an index of format {value['format']} of {value['dataset']!r:.80}")
        releases = {}
        for key, one in value["releases"].items():
            parse_key(key)
            releases[key] = _release(one)
        default = value["default_config"]
        if default is not None:
            DatasetReference.parse(f"{dataset}/{default}")
        return cls(
            dataset, number(value["serial"]), releases, tuple(map(_event, value["log"])), default,
            text(value.get("store", "")), number(value.get("store_serial", 0)),
            time_of(value.get("expires", "")),
        )  # fmt: skip


def claim(dataset: str, key: str, record: str) -> bytes:
    """Returns what the publisher of a release signs: that these bytes are this release."""
    whole = {"dataset": dataset, "release": key, "record": record}
    return json.dumps(whole, sort_keys=True, separators=(",", ":")).encode("ascii")


def now() -> str:
    """Returns the time, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def number(value: Any) -> int:
    """Returns a number that is one.

    Raises:
      ValueError: It is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"no number: {value!r:.80}")
    return value


def text(value: Any) -> str:
    """Returns a text that is one.

    Raises:
      ValueError: It is none.
    """
    if not isinstance(value, str):
        raise ValueError(f"no text: {value!r:.80}")
    return value


def time_of(value: Any) -> str:
    """Returns a time in ISO 8601 with its zone, or an empty text, that is one.

    Raises:
      ValueError: It is none.
    """
    if text(value) and datetime.fromisoformat(value).tzinfo is None:
        raise ValueError(f"no time with its zone: {value!r:.80}")
    return str(value)


def _release(value: Mapping[str, Any]) -> Release:
    record, data, digest = (text(value[name]) for name in ("record", "data", "digest"))
    if not all(map(_HEX.fullmatch, (record, data, digest))):
        raise ValueError("no SHA-256")
    return Release(
        ReleaseState(value["state"]), record, data, digest, number(value["bytes"]),
        number(value["files"]), text(value["published"]), text(value["message"]),
        tuple(Signature.from_json(one) for one in value["signatures"]),
    )  # fmt: skip


def _event(value: Mapping[str, Any]) -> Event:
    return Event(
        number(value["serial"]),
        *(text(value[name]) for name in ("time", "action", "release", "by", "note")),
    )
