"""Messages per second from Kafka into training batches, against a bare consumer loop.

    make kafka
    python benchmarks/stream.py [--messages 1000000] [--rounds 5] [--json FILE]

A real broker on this machine holds `tf.Example`s of three kinds. In turn, each in its own process:

* `bare`: confluent-kafka's `consume` of 1,000 at a time; each message's error and value are looked
  at, nothing is decoded;
* `poll`: the loop of its documentation, one message at a time;
* `ours`: `my_datasets.stream`, decoded batches of 256 as NumPy arrays, all offsets known;
* `tensors`: the same as tensors, by its `iterator()`;
* `tf`: the same as a `tf.data.Dataset`.

The rate is that from the first message to the last one.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
BATCH = 256
PARTITIONS = 4
READERS = ("bare", "poll", "ours", "tensors", "tf")


def features(kind: str) -> dict[str, Any]:
    """Returns the features of a kind of messages."""
    import numpy as np
    import tensorflow_datasets as tfds

    if kind == "table":
        columns = {f"column_{i}": np.float32 for i in range(8)}
        return {**columns, "label": np.int64}
    length = {"short": 8, "long": 256}[kind]
    return {"x": tfds.features.Tensor(shape=(length,), dtype=np.float32), "label": np.int64}


def fill(url: str, kind: str, count: int) -> int:
    """Sends messages; returns the bytes of one."""
    import numpy as np
    import tensorflow_datasets as tfds

    records = importlib.import_module("tests.kafka.examples").records
    produce = importlib.import_module("tests.kafka.kafka").produce
    random = np.random.default_rng(0)
    declared = tfds.features.FeaturesDict(features(kind))

    def example(i: int) -> dict[str, Any]:
        if kind == "table":
            values = {f"column_{j}": float(v) for j, v in enumerate(random.normal(size=8))}
            return {**values, "label": i % 10}
        length = declared["x"].shape[0]
        return {"x": random.normal(size=length).astype(np.float32), "label": i % 10}

    some = records(map(example, range(1000)), declared)
    each = count // PARTITIONS
    values: list[bytes | None] = [some[i % len(some)] for i in range(each)]
    limit = {"queue.buffering.max.messages": 2 * each, "queue.buffering.max.kbytes": 2_000_000}
    for partition in range(PARTITIONS):
        produce(url, {partition: values}, **limit)
    return len(some[0])


def bare(url: str, _directory: str, count: int) -> float:
    """Returns the seconds of a loop over `consume`."""
    consumer = _consumer(url)
    seen, begin = 0, 0.0
    while seen < count:
        for message in consumer.consume(1000, 1.0):
            if message.error():
                raise RuntimeError(str(message.error()))
            message.value()
            seen += 1
        begin = begin or time.perf_counter()
    return time.perf_counter() - begin


def poll(url: str, _directory: str, count: int) -> float:
    """Returns the seconds of a loop over `poll`."""
    consumer = _consumer(url)
    seen, begin = 0, 0.0
    while seen < count:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise RuntimeError(str(message.error()))
        message.value()
        seen += 1
        begin = begin or time.perf_counter()
    return time.perf_counter() - begin


def ours(url: str, directory: str, count: int) -> float:
    """Returns the seconds of our batches."""
    import my_datasets

    stream = my_datasets.stream(url, features=directory, batch_size=BATCH, as_numpy=True)
    return _batches(stream, lambda batch: len(batch["label"]), count)


def tensors(url: str, directory: str, count: int) -> float:
    """Returns the seconds of our batches as tensors, outside of `tf.data`."""
    import my_datasets

    stream = my_datasets.stream(url, features=directory, batch_size=BATCH)
    return _batches(stream.iterator(), lambda batch: int(batch["label"].shape[0]), count)


def tf(url: str, directory: str, count: int) -> float:
    """Returns the seconds of our batches as a `tf.data.Dataset`."""
    import my_datasets

    stream = my_datasets.stream(url, features=directory, batch_size=BATCH)
    return _batches(iter(stream), lambda batch: int(batch["label"].shape[0]), count)


def _batches(batches: Any, size: Callable[[Any], int], count: int) -> float:
    seen, begin = 0, 0.0
    # The last messages of a count that no batch divides are waited for in vain.
    while seen <= count - BATCH:
        seen += size(next(batches))
        begin = begin or time.perf_counter()
    return time.perf_counter() - begin


def _consumer(url: str) -> Any:
    import confluent_kafka

    address, _, topic = url.removeprefix("kafka://").partition("/")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bare",
            "enable.auto.commit": False,
            # As ours. With librdkafka's own second all of them wait most of the time.
            "fetch.queue.backoff.ms": 20,
        }
    )
    places = [confluent_kafka.TopicPartition(topic, i, 0) for i in range(PARTITIONS)]
    consumer.assign(places)
    return consumer


def measured(reader: str, url: str, directory: str, count: int) -> float:
    """Returns the messages per second of a reader, in a process of its own."""
    command = [sys.executable, __file__, "--once", reader, url, directory, str(count)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return count / float(done.stdout.split()[-1])


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default="short,table,long")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--once", nargs=4, metavar="ARGUMENT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        reader, url, directory, count = arguments.once
        seconds: float = globals()[reader](url, directory, int(count))
        print(seconds, flush=True)
        os._exit(0)  # the time it takes to close is not asked for
    import tensorflow_datasets as tfds

    broker_of_tests = importlib.import_module("tests.kafka.kafka").Broker
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        broker = broker_of_tests(Path(directory) / "kafka")
        broker.start()
        try:
            for kind in arguments.kinds.split(","):
                # Long messages are fewer, so that all are about as many bytes.
                count = arguments.messages // (4 if kind == "long" else 1)
                place = Path(directory) / kind
                place.mkdir()
                tfds.features.FeaturesDict(features(kind)).save_config(str(place))
                url = broker.topic(kind, PARTITIONS)
                size = fill(url, kind, count)
                rates: dict[str, list[float]] = {reader: [] for reader in READERS}
                for _ in range(arguments.rounds):
                    for reader in READERS:
                        rates[reader].append(measured(reader, url, str(place), count))
                results[kind] = {"bytes": size, "messages": count, "rates": rates}
                _show(kind, size, rates)
        finally:
            broker.stop()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def _show(kind: str, size: int, rates: dict[str, list[float]]) -> None:
    print(f"{kind}: messages of {size} bytes")
    for reader, found in rates.items():
        ratios = sorted(a / b for a, b in zip(found, rates["bare"], strict=True))
        print(
            f"  {reader:5} {median(found):12,.0f} a second; times bare: "
            f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
