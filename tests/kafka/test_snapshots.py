"""A range of offsets as a version: whole, the same each time, or an error."""

import hashlib
import json
import re
import shlex
import time
from datetime import UTC, datetime

import confluent_kafka
import jsonschema
import numpy as np
import pytest
import tensorflow_datasets as tfds
from confluent_kafka import TopicPartition

import my_datasets
from my_datasets.building.options import BuildOptions
from my_datasets.errors import (
    ExampleError,
    InvalidOptionError,
    LostMessagesError,
    StaleDataError,
    StreamError,
)
from my_datasets.kafka.snapshot import snapshot
from my_datasets.metadata.manifest import Manifest
from tests.kafka.examples import FEATURES, example, numbered
from tests.kafka.kafka import DEADLINE, produce

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

QUIET = BuildOptions(workers=2, report=lambda _: None)


def freeze(url, data_dir, reference, **options):
    return snapshot(
        url, reference, **{"features": FEATURES, "build_options": QUIET, **options},
        data_dir=data_dir,
    )  # fmt: skip


def hashes(directory):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.glob("*.tfrecord*")
        if not path.name.endswith(".idx")
    }


def ids(directory, split="train"):
    builder = tfds.builder_from_directory(directory)
    return [int(one["id"]) for one in tfds.as_numpy(builder.as_dataset(split=split))]


@pytest.fixture
def filled(topic):
    url = topic(3)
    produce(url, {p: numbered(range(p * 100, p * 100 + 100)) for p in range(3)})
    return url


def test_a_topic_becomes_a_version_that_plain_tfds_reads(filled, tmp_path):
    done = freeze(filled, tmp_path, "clicks:1.0.0")
    assert (done.dataset, done.built, done.examples) == ("clicks/1.0.0", True, 300)
    assert done.path == tmp_path / "clicks/1.0.0"
    builder = tfds.builder_from_directory(done.path)
    found = {int(one["id"]): one for one in tfds.as_numpy(builder.as_dataset(split="train"))}
    assert sorted(found) == list(range(300))
    for number in (0, 7, 299):
        wanted = example(number)
        assert found[number]["text"].decode() == wanted["text"]
        assert found[number]["list"].tolist() == wanted["list"]
        np.testing.assert_array_equal(found[number]["x"], np.float32(wanted["x"]))
    assert builder.info.features["label"].names == ["no", "yes"]
    # ... and everything of ours does.
    batch = next(iter(my_datasets.batches(done.path, split="train", batch_size=300)))
    assert sorted(batch["id"]) == list(range(300))


def test_the_same_offsets_give_the_same_bytes_also_when_the_topic_has_grown(filled, tmp_path):
    first = freeze(filled, tmp_path / "a", "clicks:1.0.0")
    produce(filled, {p: numbered(range(1000, 1050)) for p in range(3)})
    ends = dict.fromkeys(range(3), 100)
    again = freeze(filled, tmp_path / "b", "clicks:1.0.0", begin=dict.fromkeys(ends, 0), end=ends)
    one = freeze(
        filled, tmp_path / "c", "clicks:1.0.0", end=ends,
        build_options=BuildOptions(workers=1, report=lambda _: None),
    )  # fmt: skip
    assert hashes(first.path)
    assert hashes(first.path) == hashes(again.path) == hashes(one.path)
    contents = {Manifest.read(done.path).content.digest for done in (first, again, one)}
    assert len(contents) == 1
    more = freeze(filled, tmp_path / "d", "clicks:1.0.0")
    assert more.examples == 450
    assert hashes(more.path) != hashes(first.path)


def test_the_manifest_says_the_offsets_and_how_to_make_it_again(filled, tmp_path, root):
    done = freeze(filled, tmp_path, "clicks:1.0.0", begin={0: 10, 1: 0, 2: 100})
    manifest = Manifest.read(done.path)
    whole = json.loads((done.path / "my_datasets_manifest.json").read_text())
    jsonschema.validate(whole, json.loads((root / "docs/manifest.schema.json").read_text()))
    urls = [one["url"] for one in manifest.provenance["sources"]]
    name = filled.rpartition("/")[2]
    assert len(urls) == 3
    assert all(f"/{name}?cluster=" in url for url in urls)
    assert urls[0].endswith("partition=0&from=10&until=100")
    assert urls[2].endswith("partition=2&from=100&until=100")
    assert "--from-offsets 0=10,1=0,2=100 --until 0=100,1=100,2=100" in done.reproduce
    assert manifest.provenance["reproduce"] == done.reproduce
    assert "messages" in manifest.fingerprint


def test_the_command_to_make_it_again_names_the_split(filled, tmp_path):
    done = freeze(filled, tmp_path, "clicks:1.0.0", split="recent", in_order=True)
    words = shlex.split(done.reproduce)
    assert words[words.index("--split") + 1] == "recent"
    assert words[-1] == "--in-order"


def test_what_is_there_is_not_built_again_and_not_replaced(filled, tmp_path):
    freeze(filled, tmp_path, "clicks:1.0.0")
    assert not freeze(filled, tmp_path, "clicks:1.0.0").built
    produce(filled, {0: numbered([1000])})
    with pytest.raises(StaleDataError, match="was made of other messages") as caught:
        freeze(filled, tmp_path, "clicks:1.0.0")
    assert "--until 0=100,1=100,2=100" in str(caught.value)
    assert freeze(filled, tmp_path, "clicks:2.0.0").examples == 301


def test_in_order_keeps_partitions_and_offsets(filled, tmp_path):
    done = freeze(filled, tmp_path, "clicks:1.0.0", in_order=True)
    assert ids(done.path) == list(range(300))
    assert ids(freeze(filled, tmp_path, "shuffled:1.0.0").path) != list(range(300))


def test_images_are_kept_as_the_files_they_are(topic, tmp_path):
    """The digits, sent as their own records, are frozen to the same records."""
    from my_datasets.records import random_access
    from my_datasets.records.random_access import RecordShard

    my_datasets.load("digits", data_dir=tmp_path, split="test")
    source = my_datasets.source("digits", split="test", data_dir=tmp_path)
    batch = source.records.read(np.arange(len(source)))
    sent = [batch.data[a:b].tobytes() for a, b in zip(batch.starts, batch.stops, strict=True)]
    url = topic(2)
    produce(url, {0: sent[:200], 1: sent[200:]})
    done = freeze(url, tmp_path, "digits_again:1.0.0", features="digits", split="test")
    assert done.examples == len(sent) == 359
    again = my_datasets.source(done.path, split="test")
    kept = again.records.read(np.arange(len(again)))
    found = [kept.data[a:b].tobytes() for a, b in zip(kept.starts, kept.stops, strict=True)]
    assert sorted(found) == sorted(sent)
    assert isinstance(again.records, random_access.RecordReader)
    assert all(isinstance(one, RecordShard) for one in again.records.shards)
    images, labels = next(iter(my_datasets.pipeline(done.path, split="test", batch_size=359)))
    assert images.shape == (359, 8, 8, 1)
    assert labels.shape == (359,)


def test_json_and_avro_are_frozen_to_the_same_bytes_as_examples(topic, tmp_path):
    import io

    import fastavro

    schema = {
        "type": "record",
        "name": "Example",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "x", "type": {"type": "array", "items": "float"}},
            {"name": "label", "type": "long"},
            {"name": "text", "type": "string"},
            {"name": "list", "type": {"type": "array", "items": "long"}},
        ],
    }

    def avro(value):
        file = io.BytesIO()
        fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
        return file.getvalue()

    found = []
    for payload, make in (
        ("example", lambda n: numbered([n])[0]),
        ("json", lambda n: json.dumps({**example(n), "label": ["no", "yes"][n % 2]}).encode()),
        ("avro", lambda n: avro(example(n))),
    ):
        url = topic(2)
        produce(url, {p: [make(n) for n in range(p * 30, p * 30 + 30)] for p in range(2)})
        options = {"schema": schema} if payload == "avro" else {}
        done = freeze(url, tmp_path / payload, "clicks:1.0.0", payload=payload, **options)
        assert done.examples == 60
        found.append(hashes(done.path))
    assert found[0] == found[1] == found[2]


def test_since_a_time_and_until_one(topic, tmp_path):
    url = topic(1)
    produce(url, {0: numbered(range(10))})
    time.sleep(0.05)
    middle = datetime.now(UTC)
    time.sleep(0.05)
    produce(url, {0: numbered(range(10, 15))})
    assert sorted(ids(freeze(url, tmp_path, "late:1.0.0", begin=middle).path)) == [*range(10, 15)]
    assert sorted(ids(freeze(url, tmp_path, "early:1.0.0", end=middle).path)) == [*range(10)]
    with pytest.raises(InvalidOptionError, match="no time zone"):
        freeze(url, tmp_path, "x:1.0.0", begin=datetime(2026, 1, 1))


# --- What is not there ----------------------------------------------------------------------------


def test_a_range_that_retention_has_cut_is_an_error(filled, broker, tmp_path):
    name = filled.rpartition("/")[2]
    admin = broker.admin()
    asked = admin.delete_records([TopicPartition(name, 1, 40)])
    for one in asked.values():
        one.result(DEADLINE)
    with pytest.raises(LostMessagesError, match="partition 1, offsets 0 to before 100") as caught:
        freeze(filled, tmp_path, "clicks:1.0.0", begin=dict.fromkeys(range(3), 0))
    assert "Available: 40 to before 100" in str(caught.value)
    with pytest.raises(LostMessagesError, match="Available: 0 to before 100"):
        freeze(filled, tmp_path, "clicks:1.0.0", end={0: 101, 1: 100, 2: 100})
    assert not (tmp_path / "clicks").exists()
    assert freeze(filled, tmp_path, "clicks:1.0.0").examples == 260


def test_retention_that_cuts_while_it_is_read_is_an_error(filled, tmp_path, broker):
    from my_datasets.kafka import offset_ranges
    from my_datasets.kafka.connection import Connection, TopicAddress

    unit = offset_ranges.OffsetRange("c", filled.rpartition("/")[2], 0, 50, 100, "")
    admin = broker.admin()
    for one in admin.delete_records([TopicPartition(unit.topic, 0, 60)]).values():
        one.result(DEADLINE)
    reader = offset_ranges.RangeReader(Connection(TopicAddress.parse(filled)), None, None, True)
    with pytest.raises(LostMessagesError, match="Requested: partition 0, offsets 50 to before 100"):
        list(reader(unit))


def test_a_compacted_range_is_an_error_unless_it_is_allowed(topic, tmp_path):
    url = topic(
        1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001",
        min_compaction_lag_ms="0", max_compaction_lag_ms="100",
    )  # fmt: skip
    produce(url, {0: numbered([0])}, key=b"kept")
    produce(url, {0: numbered(range(1, 50))}, key=b"same")
    whole = freeze(url, tmp_path, "whole:1.0.0", begin={0: 0}, end={0: 50})
    assert whole.examples == 50
    end = time.monotonic() + DEADLINE
    number = 50
    while True:
        # A segment is closed, and then cleaned, when another one begins.
        produce(url, {0: numbered([number])}, key=b"same")
        number += 1
        said = error_of(freeze, url, tmp_path / str(number), "cut:1.0.0", begin={0: 0}, end={0: 50})
        if said:
            break
        assert time.monotonic() < end, "the broker does not compact"
        time.sleep(1)
    assert re.search(r"\d+ messages of .* are missing", said)
    assert "--allow-gaps" in said
    done = freeze(url, tmp_path, "left:1.0.0", end={0: 50}, allow_gaps=True, begin={0: 0})
    assert 1 <= done.examples < 50


def error_of(function, *args, **options):
    """Returns what a loss says; an empty text if there is none."""
    try:
        function(*args, **options)
    except LostMessagesError as error:
        return str(error)
    return ""


def test_messages_of_transactions_that_were_aborted_are_not_seen(topic, tmp_path):
    url = topic(1)
    address, _, name = url.removeprefix("kafka://").partition("/")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(DEADLINE)
    for numbers, ends in (
        (range(10), "commit"),
        (range(10, 20), "abort"),
        (range(20, 30), "commit"),
    ):
        producer.begin_transaction()
        for value in numbered(numbers):
            producer.produce(name, value, partition=0)
        producer.flush(DEADLINE)
        (producer.commit_transaction if ends == "commit" else producer.abort_transaction)(DEADLINE)
    done = freeze(url, tmp_path, "clicks:1.0.0", in_order=True)
    assert ids(done.path) == [*range(10), *range(20, 30)]
    read = my_datasets.stream(url, features=FEATURES, as_numpy=True, until="end")
    assert [int(one) for batch in read for one in batch["id"]] == [*range(10), *range(20, 30)]
    assert read.state().offsets == {0: 32}


def test_poison_is_an_error_or_set_aside_as_in_every_build(topic, tmp_path):
    url = topic(1)
    produce(url, {0: [*numbered(range(60)), b"nonsense", *numbered(range(60, 119))]})
    with pytest.raises(ExampleError, match="offsets 0 to 119"):
        freeze(url, tmp_path, "clicks:1.0.0")
    options = BuildOptions(on_error="quarantine", report=lambda _: None)
    done = freeze(url, tmp_path, "clicks:1.0.0", build_options=options)
    assert done.examples == 119
    assert Manifest.read(done.path).quarantined == {"train": 1}


@pytest.mark.parametrize(
    ("reference", "options", "error", "message"),
    [
        ("clicks", {}, InvalidOptionError, "does not name one version"),
        ("clicks:1.*.*", {}, InvalidOptionError, "does not name one version"),
        ("clicks:1.0.0", {"begin": "latest"}, StreamError, "has no messages"),
        ("clicks:1.0.0", {"end": {0: 1}}, InvalidOptionError, "Missing partitions"),
        ("clicks:1.0.0", {"begin": dict.fromkeys(range(3), 9), "end": dict.fromkeys(range(3), 8)},
         InvalidOptionError, "ends before it begins"),
    ],
)  # fmt: skip
def test_mistakes(filled, tmp_path, reference, options, error, message):
    with pytest.raises(error, match=message):
        freeze(filled, tmp_path, reference, **options)
