import pytest

from my_datasets.core.sizes import in_bytes
from my_datasets.errors import InvalidOptionError


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 0), (1000, 1000), (2**60 + 1, 2**60 + 1), ("1", 1), (" 12 B ", 12),
        ("2K", 2048), ("300kB", 300 << 10), ("1.5M", 3 << 19), ("4g", 4 << 30),
        ("4 GiB", 4 << 30), ("4GB", 4 << 30), ("4Gi", 4 << 30), ("1T", 1 << 40),
    ],
)  # fmt: skip
def test_sizes(size, expected):
    assert in_bytes(size) == expected


@pytest.mark.parametrize("size", ["", "M", "-1G", -1, "4 apples", "1e9", "4iB", "1.M", "many"])
def test_what_is_no_size(size):
    with pytest.raises(InvalidOptionError, match="is not a size; write 500M or 4G"):
        in_bytes(size)
