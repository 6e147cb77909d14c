"""Where things are in a store.

Releases lie as TFDS looks for them, `NAME/[CONFIG/]VERSION/FILE`. All else is in one folder, whose
name can be no dataset's.
"""

from my_datasets.metadata.layout import DEFAULT_CONFIG
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
