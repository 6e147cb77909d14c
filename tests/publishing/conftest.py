"""The stores that tests publish to, on real servers of this machine."""

import contextlib
import itertools

import pytest

from my_datasets.publishing.opening import open_store
from tests import servers

_NUMBERS = itertools.count()


@contextlib.contextmanager
def directory(_):
    yield None


@pytest.fixture(scope="module")
def s3_bucket():
    with servers.s3("releases") as (url, _):
        yield url


@pytest.fixture(scope="module")
def gcs_bucket():
    with servers.gcs("releases") as (url, _):
        yield url


@pytest.fixture(params=["local", "s3", "gcs"])
def address(request, tmp_path):
    """The address of an empty store, for each kind that can be written."""
    if request.param == "local":
        return str(tmp_path / "store")
    bucket = request.getfixturevalue(f"{request.param}_bucket")
    return f"{bucket}/folder{next(_NUMBERS)}"


@pytest.fixture
def store(address):
    return open_store(address)
