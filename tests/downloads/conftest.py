import pytest

from tests.downloads.server import serving


@pytest.fixture
def server():
    """A server of this test's own."""
    with serving() as found:
        yield found
