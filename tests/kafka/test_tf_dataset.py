"""Streams as `tf.data.Dataset`s; on the mock broker."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import my_datasets
from my_datasets.errors import FeatureError
from tests.conftest import ROOT
from tests.kafka.examples import FEATURES, example, numbered
from tests.kafka.kafka import produce


def data(url, **options):
    return my_datasets.stream(url, **{"features": FEATURES, "batch_size": 8, **options})


def test_the_form_of_batches_is_known_before_a_broker_is_asked():
    endless = data("kafka://127.0.0.1:1/t")
    assert endless.element_spec["x"] == tf.TensorSpec((8, 3), tf.float32)
    assert endless.element_spec["text"] == tf.TensorSpec((8,), tf.string)
    assert endless.element_spec["list"].shape == (8, None)
    ending = data("kafka://127.0.0.1:1/t", until="end")
    assert ending.element_spec["x"] == tf.TensorSpec((None, 3), tf.float32)
    assert data("kafka://127.0.0.1:1/t", max_wait=1.0).element_spec["id"].shape == (None,)


def test_batches_are_tensors_of_that_form(mock_topic):
    produce(mock_topic, {0: numbered(range(20))})
    batches = list(data(mock_topic, until="end"))
    assert [len(batch["id"]) for batch in batches] == [8, 8, 4]
    numbers = np.concatenate([batch["id"] for batch in batches])
    assert numbers.tolist() == list(range(20))
    row = batches[1]
    assert row["list"].to_list() == [example(n)["list"] for n in range(8, 16)]
    assert row["text"][0].numpy().decode() == example(8)["text"]


def test_inputs_and_targets_are_chosen_by_name(mock_topic):
    produce(mock_topic, {0: numbered(range(8))})
    x, label = next(iter(data(mock_topic, as_supervised=("x", "label"))))
    assert x.shape == (8, 3)
    assert label.numpy().tolist() == [n % 2 for n in range(8)]
    assert set(next(iter(data(mock_topic, columns=["id", "x"])))) == {"id", "x"}


def test_each_iteration_begins_where_the_state_is_and_ends_the_one_before(mock_topic):
    produce(mock_topic, {0: numbered(range(64))})
    stream = data(mock_topic)
    first = iter(stream)
    assert next(first)["id"][0] == 0
    assert stream.state().offsets[0] == 8
    second = iter(stream)
    assert next(second)["id"][0] == 0
    assert next(first, None) is None
    later = data(mock_topic, state=stream.state())
    assert next(iter(later))["id"][0] == 8


@pytest.mark.kafka  # the mock keeps a member that has left
def test_a_batch_is_consumed_when_the_next_one_is_asked_for_and_not_earlier(topic):
    """`tf.data` asks for nothing early behind our back: a group knows exactly what was given."""
    url = topic(1)
    produce(url, {0: numbered(range(64))})
    stream = data(url, group="asked", commit_seconds=0.01)
    taken = iter(stream)
    for _ in range(3):
        next(taken)
    assert stream.state().offsets[0] == 24
    stream.close()
    again = data(url, group="asked")
    assert next(iter(again))["id"][0] == 16  # the third one was in hand
    again.close()


def test_fit_learns_from_a_stream_and_its_state_is_that_after_each_step(mock_topic):
    produce(mock_topic, {0: numbered(range(100))})
    stream = data(mock_topic, as_supervised=("x", "label"), batch_size=4)
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    offsets = []

    class Noting(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            offsets.append(stream.state().offsets[0])

    model.fit(stream, steps_per_epoch=5, epochs=2, verbose=0, callbacks=[Noting()])
    assert np.diff(offsets).tolist() == [4] * 9


def test_images_of_any_size_need_a_size():
    import tensorflow_datasets as tfds

    features = {"image": tfds.features.Image(), "n": np.int64}
    with pytest.raises(FeatureError, match="image_size"):
        data("kafka://127.0.0.1:1/t", features=features)
    spec = data("kafka://127.0.0.1:1/t", features=features, image_size=(5, 6)).element_spec
    assert spec["image"].shape == (8, 5, 6, 3)
    assert set(data("kafka://127.0.0.1:1/t", features=features, columns=["n"]).element_spec) == {
        "n"
    }


@pytest.mark.parametrize("kind", ["numpy", "tf"])
def test_a_process_ends_also_if_it_waits_for_messages(mock_topic, kind, tmp_path):
    produce(mock_topic, {0: numbered(range(8))})
    FEATURES.save_config(str(tmp_path))
    script = f"""
import my_datasets, threading, time
stream = my_datasets.stream({mock_topic!r}, features={str(tmp_path)!r}, batch_size=8,
                            as_numpy={kind == "numpy"})
batches = iter(stream)
print(len(next(batches)["id"]), flush=True)
threading.Thread(target=lambda: next(batches, None), daemon=True).start()
time.sleep(0.5)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["8"]
    assert done.returncode == 0, done.stderr


def test_without_tensors_tensorflow_is_not_loaded(mock_topic, tmp_path):
    produce(mock_topic, {0: numbered(range(8))})
    FEATURES.save_config(str(tmp_path))
    script = f"""
import sys, my_datasets
stream = my_datasets.stream({mock_topic!r}, features={str(tmp_path)!r}, until="end", as_numpy=True)
print(sum(len(batch["id"]) for batch in stream), "tensorflow" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["8", "False"], done.stderr
