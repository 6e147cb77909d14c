"""Where things are in a store.

Releases lie as TFDS looks for them, `NAME/[CONFIG/]VERSION/FILE`. All else is in one folder, whose
name can be no dataset's.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from my_datasets.core.reference import DatasetReference
from my_datasets.metadata.layout import DEFAULT_CONFIG
from my_datasets.publishing.model.index import number, text, time_of
from my_datasets.publishing.model.signed_json import KeyChange
from my_datasets.storage.store import MARK

_OURS = "my-datasets"
STORE = MARK
UPLOADS = f"{_OURS}/uploads"


def index_of(dataset: str) -> str:
    """Returns where the index of a dataset is."""
    return f"{_OURS}/index/{dataset}.json"


def release_of(dataset: str, key: str) -> str:
    """Returns the folder of a release."""
    return f"{dataset}/{key}"


def upload_of(dataset: str, key: str, record: str) -> str:
    """Returns the folder in which a release lies before it is placed.

    Other bytes have another record, and so another folder: publishers do not meet there. The same
    bytes have the same, so that what was uploaded is not uploaded again.
    """
    return f"{UPLOADS}/{dataset}/{key.replace('/', '-')}/{record}"


def default_config_of(dataset: str) -> str:
    """Returns where TFDS looks for the config that is meant if none is named."""
    return f"{dataset}/{DEFAULT_CONFIG}"


MOST_BYTES = 16 << 20
_FORMAT = 1
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Settings:
    """What holds for all of a store.

    Attributes:
      store: What tells it from others, whatever its address is.
      serial: Raised by each change.
      requires_signatures: Whether all must be signed.
      datasets: The names of the datasets that have an index.
      names_store: Whether every index names the store, so that one that does not is another's.
      valid_seconds: For how long signatures of the store's documents count; 0 for ever.
      expires: Until when those of this document count, in ISO 8601; empty if for ever.
      key_changes: Which keys were added and revoked, oldest first.
    """

    store: str
    serial: int = 0
    requires_signatures: bool = False
    datasets: tuple[str, ...] = ()
    names_store: bool = False
    valid_seconds: int = 0
    expires: str = ""
    key_changes: tuple[KeyChange, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns it as it is stored, without signatures."""
        return {
            "format": _FORMAT,
            "store": self.store,
            "serial": self.serial,
            "requires_signatures": self.requires_signatures,
            "datasets": list(self.datasets),
            "names_store": self.names_store,
            "valid_seconds": self.valid_seconds,
            "expires": self.expires,
            "key_changes": [asdict(one) for one in self.key_changes],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Settings":
        """Returns what `to_json` wrote.

        Raises:
          ValueError, TypeError, KeyError, AttributeError: It is something else.
        """
        if value["format"] != _FORMAT or not isinstance(value["requires_signatures"], bool):
            raise ValueError(f"a store of format {value['format']}")
        names = [DatasetReference.parse(name) for name in value["datasets"]]
        if any(str(one) != one.name or len(one.name) > _LONGEST_NAME for one in names):
            raise ValueError("no name of a dataset")
        return cls(
            text(value["store"]), number(value["serial"]),
            value["requires_signatures"], tuple(one.name for one in names),
            value.get("names_store", False) is True, number(value.get("valid_seconds", 0)),
            time_of(value.get("expires", "")),
            tuple(map(KeyChange.from_json, value.get("key_changes", ()))),
        )  # fmt: skip
