"""The stores that tests publish to, on real servers of this machine."""

import itertools

import numpy as np
import pytest

from my_datasets.publishing.opening import open_store
from my_datasets.publishing.patience import Patience
from tests import servers
from tests.publishing import made

_NUMBERS = itertools.count()


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


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """A data directory with versions; nobody changes it."""
    directory = tmp_path_factory.mktemp("built")
    made.make(directory, "1.0.0")
    # The same data, and a feature more; then other data.
    made.make(directory, "1.1.0", more={"again": np.int64})
    made.make(directory, "2.0.0", salt="other")
    return directory


@pytest.fixture
def built(data_dir):
    """The directory of a version, by its number."""
    return lambda version="1.0.0": data_dir / made.NAME / version


@pytest.fixture
def impatient():
    """Patience for tests: as many tries, without the pauses."""
    return Patience(first_wait=0.01, longest_wait=0.05)
