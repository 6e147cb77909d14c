"""Datasets that are prepared, and published, once for all tests of pages."""

from types import SimpleNamespace

import pytest

from my_datasets.publishing.admin import yank
from my_datasets.publishing.catalog_client import CatalogClient
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.storage.backends import open_store
from my_datasets.storage.retry import RetryingStore
from tests.catalog import made


@pytest.fixture(scope="package")
def data_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("catalog") / "data"
    made.prepare(directory)
    return directory


@pytest.fixture(scope="package")
def published(data_dir):
    """A store with signed releases, of which one is withdrawn."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from my_datasets.publishing.model.signing import Signer

    signer = Signer(Ed25519PrivateKey.generate())
    store, memory = data_dir.parent / "store", data_dir.parent / "memory"
    made.publish_all(data_dir, store, memory, signer=signer)
    ledger = CatalogClient(
        RetryingStore(open_store(store)),
        signer=signer,
        keys=signer.public,
        memory=RollbackState(memory),
    )
    yank(ledger, "weights:1.1.0", "Heights are <b>wrong</b>.")
    return SimpleNamespace(store=store, signer=signer, keys=signer.public, memory=memory)
