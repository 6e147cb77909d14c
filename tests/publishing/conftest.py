"""What tests publish."""

import numpy as np
import pytest

from my_datasets.storage.retry import RetryPolicy
from tests.publishing import made


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
    return RetryPolicy(first_wait=0.01, longest_wait=0.05)
