"""Brokers for the tests: a real one, and librdkafka's mock."""

import itertools

import pytest

from tests.kafka import kafka

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A real broker, for tests that leave it running."""
    kafka.require()
    found = kafka.Broker(tmp_path_factory.mktemp("kafka"))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def own_broker(tmp_path):
    """A real broker of the test's own, which it may kill."""
    kafka.require()
    found = kafka.Broker(tmp_path / "kafka")
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def mock_address():
    """The address of a mock broker: for small messages, of which it drops the oldest in silence."""
    with kafka.mock() as address:
        yield address


@pytest.fixture
def topic(broker, request):
    """`topic(partitions, **config)` makes a topic on the real broker; returns its URL."""
    return lambda partitions=1, **config: broker.topic(
        f"t{next(_numbers)}-{request.node.name[:60].translate(_PLAIN)}", partitions, **config
    )


@pytest.fixture
def mock_topic(mock_address):
    """The URL of a topic of four partitions on the mock broker."""
    return f"kafka://{mock_address}/t{next(_numbers)}"


_PLAIN = str.maketrans(dict.fromkeys("*[]/ :,()'\"", "_"))
