"""How much is read at once."""

import pytest

from my_datasets.kafka.offsets import TopicRange


def reading(**options):
    defaults = {
        "batch_size": 32, "group": None, "start": "earliest", "until": None, "shard": (0, 1),
        "on_lost": "fail", "idle_timeout": None, "patience": 1.0, "commit_seconds": 1.0,
        "memory": 128 << 20, "workers": 1,
    }  # fmt: skip
    return TopicRange(**{**defaults, **options})


@pytest.mark.parametrize("batch_size", [1, 32, 300, 5000])
@pytest.mark.parametrize("size", [0, 10, 1000, 100_000, 50_000_000])
def test_what_is_read_at_once_fits_and_grows_by_steps(batch_size, size):
    found = reading(batch_size=batch_size)
    rows = found.first_rows
    assert 1 <= rows <= 64
    for _ in range(10):
        more = found.rows_of(size, rows)
        assert 1 <= more <= 4 * rows
        assert more == 1 or more * size <= found.memory / 2 / 16
        assert more < batch_size or more % batch_size == 0
        rows = more
    if size == 10:
        assert rows >= min(2048, batch_size) or batch_size == 300


def test_only_a_group_is_reported_to_kafka():
    assert "group.id" not in reading().settings
    assert reading(group="g").settings["group.id"] == "g"
    assert reading(memory=64 << 20).settings["queued.max.messages.kbytes"] == 32 << 10
