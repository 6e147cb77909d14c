"""What comes out of a topic; on the mock broker, as messages are small and few."""

import itertools
import json

import numpy as np
import pytest

from my_datasets.errors import (
    ExampleError,
    FeatureError,
    InvalidOptionError,
    PlanError,
    QuarantineError,
    StreamError,
    UnknownOptionError,
)
from my_datasets.kafka.offsets import TopicPosition
from my_datasets.kafka.stream import stream
from tests.kafka.examples import FEATURES, example, ids, numbered
from tests.kafka.kafka import produce


def read(url, **options):
    return stream(url, **{"features": FEATURES, "as_numpy": True, "until": "end", **options})


def test_examples_come_as_they_were_sent_in_the_order_of_their_partitions(mock_topic):
    produce(mock_topic, {0: numbered(range(70)), 3: numbered(range(100, 130))})
    batches = list(read(mock_topic, batch_size=32))
    assert [len(batch["id"]) for batch in batches] == [32, 32, 32, 4]
    found = ids(batches)
    assert [one for one in found if one < 100] == list(range(70))
    assert [one for one in found if one >= 100] == list(range(100, 130))
    rows = [
        {name: column[i] for name, column in batch.items()}
        for batch in batches
        for i in range(len(batch["id"]))
    ]
    for row in rows:
        wanted = example(int(row["id"]))
        np.testing.assert_array_equal(row["x"], np.float32(wanted["x"]))
        assert row["label"] == wanted["label"]
        assert row["text"].decode() == wanted["text"]
        assert row["list"].tolist() == wanted["list"]


@pytest.mark.parametrize("batch_size", [1, 7, 64, 5000])
def test_no_size_of_batches_changes_what_comes(mock_topic, batch_size):
    produce(mock_topic, {0: numbered(range(300))})
    batches = list(read(mock_topic, batch_size=batch_size))
    assert ids(batches) == list(range(300))
    assert all(len(batch["id"]) == batch_size for batch in batches[:-1])
    left = read(mock_topic, batch_size=batch_size, drop_remainder=True)
    assert len(ids(left)) == 300 // batch_size * batch_size


def test_an_empty_topic_ends_at_once_if_it_is_to_end(mock_topic):
    produce(mock_topic, {0: []})
    assert list(read(mock_topic)) == []


def test_a_state_resumes_with_the_next_message(mock_topic):
    produce(mock_topic, {0: numbered(range(50)), 1: numbered(range(50, 90))})
    first = read(mock_topic, batch_size=8)
    seen = ids(next(first) for _ in range(5))
    text = first.state().to_json()
    first.close()
    assert sorted(seen + ids(read(mock_topic, state=text))) == list(range(90))
    # As often as one likes, and to the same; only partitions are in order, as brokers answer.
    again = ids(read(mock_topic, state=TopicPosition.from_json(text), batch_size=8))
    assert sorted(seen + again) == list(range(90))


def test_a_state_of_another_topic_is_refused(mock_topic, mock_address):
    produce(mock_topic, {0: numbered(range(3))})
    produce(f"{mock_topic}-other", {0: numbered(range(3))})
    state = read(f"{mock_topic}-other").state()
    with pytest.raises(PlanError, match="belongs to another stream"):
        next(read(mock_topic, state=state))
    with pytest.raises(PlanError, match="not a position"):
        read(mock_topic, state="{}")
    with pytest.raises(PlanError, match=r"shard \(0, 2\)"):
        next(read(f"{mock_topic}-other", state=state, shard=(0, 2)))


def test_shards_share_the_partitions(mock_topic):
    produce(mock_topic, {p: numbered(range(p * 10, p * 10 + 10)) for p in range(4)})
    parts = [ids(read(mock_topic, shard=(i, 3))) for i in range(3)]
    assert sorted(itertools.chain(*parts)) == list(range(40))
    assert sorted(parts[0]) == [*range(10), *range(30, 40)]


def test_where_to_begin(mock_topic):
    produce(mock_topic, {0: numbered(range(10))})
    start = {0: 7, 1: 0, 2: 0, 3: 0}
    assert ids(read(mock_topic, start=start)) == [7, 8, 9]
    assert ids(read(mock_topic, start="latest")) == []
    with pytest.raises(InvalidOptionError, match=r"Missing partitions: \[1, 2, 3\]"):
        next(read(mock_topic, start={0: 1}))
    with pytest.raises(InvalidOptionError, match="not a place in a topic"):
        next(read(mock_topic, start="first"))


def test_a_batch_that_does_not_fill_comes_after_max_wait(mock_topic):
    produce(mock_topic, {0: numbered(range(5))})
    with read(mock_topic, until=None, batch_size=1000, max_wait=0.2) as batches:
        assert ids([next(batches)]) == [0, 1, 2, 3, 4]
        produce(mock_topic, {0: numbered([5])})
        assert ids([next(batches)]) == [5]


def test_an_idle_topic_ends_after_the_idle_timeout(mock_topic):
    produce(mock_topic, {0: numbered(range(5))})
    assert ids(read(mock_topic, until=None, idle_timeout=2)) == [0, 1, 2, 3, 4]


def test_closing_ends_the_iteration_also_of_who_waits(mock_topic):
    import threading

    produce(mock_topic, {0: []})
    batches = read(mock_topic, until=None)
    batches.state()
    found = []
    waiting = threading.Thread(target=lambda: found.append(next(batches, "end")))
    waiting.start()
    batches.close()
    waiting.join(60)
    assert found == ["end"]
    assert next(batches, "end") == "end"


def test_tombstones_are_passed_over_and_their_offsets_are_not_lost(mock_topic):
    values = numbered(range(6))
    produce(mock_topic, {0: [values[0], None, None, *values[1:], None]}, key=b"k")
    batches = read(mock_topic, batch_size=2)
    assert ids(batches) == list(range(6))
    assert (batches.counts.messages, batches.counts.tombstones) == (9, 3)
    assert batches.state().offsets[0] == 9


# --- Poison ---------------------------------------------------------------------------------------


def with_poison(numbers, poison):
    values = numbered(numbers)
    for place, value in sorted(poison.items()):
        values.insert(place, value)
    return values


def test_a_message_that_cannot_be_decoded_is_an_error_that_says_where(mock_topic):
    produce(mock_topic, {2: with_poison(range(10), {4: b"\x00\xffnothing"})})
    with pytest.raises(ExampleError) as caught:
        list(read(mock_topic))
    name = mock_topic.rpartition("/")[2]
    assert f"Topic {name}, partition 2, offset 4" in str(caught.value)
    assert "quarantine='FILE'" in str(caught.value)


def test_poison_is_set_aside_and_nothing_else(mock_topic, tmp_path):
    other_kind = records_of_another_kind()
    poison = {0: other_kind, 17: b"", 18: b"\xff" * 20, 60: b"nonsense", 103: other_kind}
    produce(mock_topic, {1: with_poison(range(100), poison)})
    file = tmp_path / "poison.jsonl"
    batches = read(mock_topic, batch_size=16, quarantine=file)
    assert ids(batches) == list(range(100))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["partition"], one["offset"]) for one in lines] == [(1, p) for p in sorted(poison)]
    assert all(one["expected"] and one["found"] for one in lines)
    assert lines[0]["feature"]
    assert batches.quarantined == 5
    assert batches.state().offsets[1] == 105
    assert file.stat().st_mode & 0o077 == 0  # messages may be personal


def records_of_another_kind():
    """Returns a message whose label is a text."""
    import tensorflow as tf

    found = tf.train.Example.FromString(numbered([1])[0])
    found.features.feature["label"].bytes_list.value.append(b"yes")
    return found.SerializeToString()


@pytest.mark.parametrize("batch_size", [1, 60, 2000])
def test_where_it_is_is_known_after_each_batch(mock_topic, tmp_path, batch_size):
    """Also in the midst of what was read at once, of all partitions, with some set aside."""
    random = np.random.default_rng(batch_size)
    sent = {}
    for partition in range(4):
        values = numbered(range(1000 * partition, 1000 * partition + 700))
        kinds = random.choice(3, 700, p=[0.9, 0.05, 0.05])
        sent[partition] = [
            (value, b"bad", None)[kind] for value, kind in zip(values, kinds, strict=True)
        ]
        # Else nobody could tell what comes behind the last example from what does not.
        sent[partition][-1] = values[-1]
    produce(mock_topic, sent)
    batches = read(mock_topic, batch_size=batch_size, quarantine=tmp_path / "q", max_quarantined=1)
    given = {partition: [] for partition in sent}
    for batch in batches:
        for one in ids([batch]):
            given[one // 1000].append(one % 1000)
        for partition, at in batches.state().offsets.items():
            passed = sent[partition][:at]
            good = [i for i, value in enumerate(passed) if value not in (None, b"bad")]
            assert given[partition] == good
    assert all(numbers[-1] == 699 for numbers in given.values())
    assert set(batches.state().offsets.values()) == {700}
    tombstones = sum(value is None for values in sent.values() for value in values)
    assert batches.counts.tombstones == tombstones


def test_too_much_poison_is_an_error(mock_topic, tmp_path):
    produce(mock_topic, {0: [*numbered(range(5)), *[b"bad"] * 12]})
    with pytest.raises(QuarantineError, match="More than 10 of 10,000") as caught:
        list(read(mock_topic, quarantine=tmp_path / "q", max_quarantined=0.001))
    assert "partition 0" in str(caught.value)
    assert len((tmp_path / "q").read_text().splitlines()) == 12


def test_a_quarantine_that_cannot_be_written_is_known_at_once(mock_topic):
    with pytest.raises(InvalidOptionError, match="cannot be written"):
        read(mock_topic, quarantine="/nonexistent/file")


# --- Mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, InvalidOptionError, "batch_size"),
        ({"group": ""}, InvalidOptionError, "group"),
        ({"group": "g", "shard": (0, 2)}, InvalidOptionError, "a group shares by itself"),
        ({"shard": (2, 2)}, InvalidOptionError, "shard"),
        ({"memory": "1K"}, InvalidOptionError, "memory"),
        ({"payload": "xml"}, InvalidOptionError, "payload='xml'"),
        ({"payload": "avro"}, InvalidOptionError, "needs a schema"),
        ({"payload": "json", "schema": {}}, InvalidOptionError, "takes no schema"),
        ({"options": {"group.id": "x"}}, InvalidOptionError, "use group"),
        ({"columns": ["nothing"]}, FeatureError, "'nothing'"),
        ({"as_supervised": True}, FeatureError, "as_supervised="),
        ({"features": 3}, FeatureError, "features is a int"),
    ],
)
def test_mistakes_are_known_before_a_broker_is_asked(options, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        read("kafka://127.0.0.1:1/t", **options)


@pytest.mark.parametrize("as_numpy", [True, False])
def test_an_unknown_option_is_an_error(as_numpy):
    with pytest.raises(UnknownOptionError, match=r"no option batchsize=.*\n.*'batch_size'"):
        stream("kafka://h:1/t", features={}, as_numpy=as_numpy, batchsize=1)


def test_a_stream_without_features_is_refused():
    with pytest.raises(InvalidOptionError, match="stream requires features"):
        stream("kafka://127.0.0.1:1/t")


def test_options_that_kafka_does_not_take(mock_topic):
    with pytest.raises(InvalidOptionError, match=r"no\.such\.option"):
        next(read(mock_topic, options={"no.such.option": "1"}))


def test_no_broker_is_an_error_that_names_it(monkeypatch):
    from my_datasets.kafka import connection

    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.5)
    with pytest.raises(StreamError, match=r"kafka://127\.0\.0\.1:1/t cannot be read") as caught:
        next(read("kafka://127.0.0.1:1/t"))
    assert isinstance(caught.value, ConnectionError)
