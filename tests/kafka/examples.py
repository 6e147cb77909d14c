"""Examples that tests send: each has a number of its own, by which it is found again."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from my_datasets.builders.encode.encoder import ExampleEncoder
from my_datasets.records import tfrecord

FEATURES = tfds.features.FeaturesDict(
    {
        "id": np.int64,
        "x": tfds.features.Tensor(shape=(3,), dtype=np.float32),
        "label": tfds.features.ClassLabel(names=["no", "yes"]),
        "text": tfds.features.Text(),
        "list": tfds.features.Sequence(np.int64),
    }
)


def example(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "x": [number, number / 2, -1.0],
        "label": number % 2,
        "text": f"text {number} ä",
        "list": list(range(number % 4)),
    }


def records(examples: Iterable[Any], features: Any = FEATURES) -> list[bytes]:
    """Returns examples as `tf.Example`s."""
    framed = ExampleEncoder(features).rows(list(examples))
    return [one.as_py()[tfrecord.HEADER : -tfrecord.FOOTER] for one in framed]


def numbered(numbers: Iterable[int], padding: int = 0) -> list[bytes]:
    """Returns the examples of some numbers as messages, of at least so many bytes."""
    return records({**one, "text": one["text"] + " " * padding} for one in map(example, numbers))


def ids(batches: Iterable[Any]) -> list[int]:
    return [int(one) for batch in batches for one in batch["id"]]
