"""The layout of a store, and the settings that apply to all of it.

Releases are where TFDS looks for them, `NAME/[CONFIG/]VERSION/FILE`. Everything else is in one
folder, whose name is not a valid dataset name.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from my_datasets.core.json_types import Json
from my_datasets.core.reference import DatasetReference
from my_datasets.metadata.layout import DEFAULT_CONFIG
from my_datasets.publishing.model.index import Number, check_time
from my_datasets.publishing.model.signed_json import KeyChange
from my_datasets.storage.json_files import convert_json
from my_datasets.storage.store import MARK

_OURS = "my-datasets"
STORE = MARK
UPLOADS = f"{_OURS}/uploads"

MOST_BYTES = 16 << 20
_FORMAT = 1
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
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> "Settings":
        """Converts what `to_json` returned.

        Raises:
          ValueError, TypeError, KeyError: It is malformed.
        """
        if value["format"] != _FORMAT:
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
