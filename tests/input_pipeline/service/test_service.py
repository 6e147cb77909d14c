"""Pipelines whose batches a service makes: what they are like, and what is refused."""

import socket
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import my_datasets
from my_datasets.errors import InvalidOptionError, PlanError, ServiceError
from my_datasets.input_pipeline.service.dataset import ExactReceiver
from my_datasets.input_pipeline.service.server import free_port
from tests.input_pipeline.service.conftest import ROWS
from tests.waiting import until

pytestmark = pytest.mark.integration

IMAGES = {"columns": ["id", "image"], "batch_size": 100}


def ids_of(batches):
    return [batch["id"].numpy().tolist() for batch in batches]


@pytest.mark.parametrize("by_trainer", [False, True])
@pytest.mark.parametrize("augmented", [False, True])
def test_values_are_those_made_here(cluster, rows_dir, monkeypatch, augmented, by_trainer):
    if by_trainer:  # as it does for a worker that is gone without a word
        monkeypatch.setattr(ExactReceiver, "begin", ExactReceiver.begin_local)
    augment = my_datasets.augment.standard_image(crop=0.1, seed=5) if augmented else None
    options = {"columns": ["id", "image", "text", "label"], "batch_size": 100, "epochs": 2,
               "data_dir": rows_dir, "augment": augment}  # fmt: skip
    here = my_datasets.pipeline("served_rows", **options)
    there = my_datasets.pipeline("served_rows", service=cluster.url, **options)
    assert there.element_spec == here.element_spec
    for found, wanted in zip(there, here, strict=True):
        for name in wanted:
            if name == "image" and augmented:
                assert np.allclose(found[name], wanted[name], atol=1e-5)
            else:
                assert np.array_equal(found[name].numpy(), wanted[name].numpy())
    assert there.stats().steps == 2 * ROWS / 100
    assert ("here" in there.stats().workers) is by_trainer


def test_it_resumes_from_a_position(cluster, rows_dir, tmp_path):
    options = {**IMAGES, "epochs": 3, "data_dir": rows_dir, "service": cluster.url}
    whole = my_datasets.pipeline("served_rows", **options)
    wanted = ids_of(whole)
    iterator = my_datasets.pipeline("served_rows", **options).iterator()
    for _ in range(40):
        next(iterator)
    path = tf.train.Checkpoint(data=iterator).save(tmp_path / "model")
    other = my_datasets.pipeline("served_rows", **options).iterator()
    tf.train.Checkpoint(data=other).restore(path)
    assert ids_of(other) == wanted[40:]
    rest = my_datasets.pipeline("served_rows", state=whole.state_after(40), **options)
    assert ids_of(rest) == wanted[40:]
    assert [one.epoch for one in rest.stats().epochs] == [1, 2]


def test_iterating_again_is_the_next_epoch(cluster, rows_dir):
    here = my_datasets.pipeline("served_rows", data_dir=rows_dir, **IMAGES)
    there = my_datasets.pipeline("served_rows", service=cluster.url, data_dir=rows_dir, **IMAGES)
    first, second = ids_of(here), ids_of(here)
    assert first != second
    assert [ids_of(there), ids_of(there)] == [first, second]
    assert [one.epoch for one in there.stats().epochs] == [0, 1]
    there.set_epoch(0)
    assert ids_of(there) == first


def test_without_an_order_there_is_no_position(cluster, rows_dir):
    train = my_datasets.pipeline(
        "served_rows", service=cluster.url, sharding="dynamic", data_dir=rows_dir, **IMAGES
    )
    with pytest.raises(PlanError, match="no position"):
        train.state_after(3)


def test_a_model_is_trained(cluster, rows_dir):
    train = my_datasets.pipeline(
        "served_rows", service=cluster.url, columns=["image", "label"], batch_size=100, epochs=None,
        data_dir=rows_dir, image_dtype="float32",
    ).map(lambda batch: (batch["image"], batch["label"]))  # fmt: skip
    layers = [keras.layers.Input((6, 5, 3)), keras.layers.Flatten(), keras.layers.Dense(4)]
    model = keras.Sequential(layers)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(train, steps_per_epoch=30, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


@pytest.mark.parametrize("sharding", ["exact", "static"])
def test_trainers_share_it_and_read_in_step(cluster, rows_dir, sharding):
    """Coordinated reads: in each step all trainers have examples of about the same length."""
    options = {"columns": ["id", "list"], "batch_size": 50, "bucket_by": "list", "epochs": 2,
               "remainder": "drop", "data_dir": rows_dir}  # fmt: skip
    found = [None, None]

    def train(index):
        found[index] = [
            (batch["id"].numpy().tolist(), batch["list"].row_lengths().numpy())
            for batch in my_datasets.pipeline(
                "served_rows", service=cluster.url, sharding=sharding, shard=(index, 2), **options
            )
        ]

    trainers = [threading.Thread(target=train, args=(index,)) for index in range(2)]
    for trainer in trainers:
        trainer.start()
    for trainer in trainers:
        trainer.join(300)
    for epoch in range(2):
        steps = [some[epoch * 30 : epoch * 30 + 30] for some in found]
        ids = [i for some in steps for batch, _ in some for i in batch]
        assert sorted(ids) == sorted(set(ids))
        assert len(ids) == ROWS
        for (_, one), (_, other) in zip(*steps, strict=True):
            assert max(one.max(), other.max()) - min(one.min(), other.min()) <= 1


def test_python_cannot_cross(cluster, rows_dir):
    class Inverted:
        draws = 0

        def __call__(self, images, targets, draws):
            found = tf.numpy_function(lambda pixels: 1 - pixels, [images], tf.float32)
            found.set_shape(images.shape)
            return found, targets

    class Scaled:
        draws = 0

        def __init__(self):
            self.factor = tf.Variable(0.5)

        def __call__(self, images, targets, draws):
            return images * self.factor, targets

    for change, said in ((Inverted(), "calls Python"), (Scaled(), r"tf\.Variable")):
        augment = my_datasets.augment.compose([change])
        options = {**IMAGES, "data_dir": rows_dir, "augment": augment}
        next(iter(my_datasets.pipeline("served_rows", **options)))
        with pytest.raises(ServiceError, match=said):
            my_datasets.pipeline("served_rows", service=cluster.url, **options)


@pytest.mark.parametrize("url", ["localhost:5050", "http://localhost:5050", "grpc://localhost"])
def test_what_is_no_service_is_refused(rows_dir, url):
    with pytest.raises(InvalidOptionError, match="is not the address of a"):
        my_datasets.pipeline("served_rows", service=url, data_dir=rows_dir, **IMAGES)


def test_unknown_sharding_and_no_deadline_are_refused(rows_dir):
    options = {"service": "grpc://localhost:1", "data_dir": rows_dir, **IMAGES}
    with pytest.raises(InvalidOptionError, match="'exact', 'static', 'dynamic', 'off'"):
        my_datasets.pipeline("served_rows", sharding="file", **options)
    with pytest.raises(InvalidOptionError, match="deadline=0"):
        my_datasets.pipeline("served_rows", deadline=0, **options)


_DEAD = """
import sys, time
import my_datasets
train = my_datasets.pipeline("served_rows", columns=["id"], service=sys.argv[1], deadline=2,
                             data_dir=sys.argv[2])
begin = time.monotonic()
try:
    next(iter(train))
except Exception as error:
    print(error)
print("waited", time.monotonic() - begin)
"""


@pytest.mark.parametrize("there", [False, True])
def test_a_service_that_does_nothing_is_an_error_within_the_deadline(rows_dir, there):
    """Nobody listens there, or somebody who never answers; the process ends all the same."""
    with socket.create_server(("localhost", 0)) as silent:
        port = silent.getsockname()[1] if there else free_port()
        done = subprocess.run(
            [sys.executable, "-c", _DEAD, f"grpc://localhost:{port}", str(rows_dir)],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"Nothing new came from the service at grpc://localhost:{port} for 2 s" in done.stdout
    assert f"The dispatcher {'answers' if there else 'does not answer'}" in done.stdout
    assert "--supervise" in done.stdout
    assert float(done.stdout.split("waited ")[1]) >= 2


def test_an_error_in_a_worker_is_reported(cluster, tmp_path, rows_dir):
    import shutil

    copy = tmp_path / "served_rows/1.0.0"
    shutil.copytree(rows_dir / "served_rows/1.0.0", copy)
    train = my_datasets.pipeline(copy, service=cluster.url, columns=["id"], batch_size=100)
    for shard in copy.glob("*.tfrecord-*-of-?????"):
        data = bytearray(shard.read_bytes())
        data[200] ^= 0xFF
        shard.write_bytes(bytes(data))
    with pytest.raises(tf.errors.OpError) as caught:
        list(train)
    assert "cannot make a batch" in str(caught.value)
    assert "DamagedRecordsError" in str(caught.value)  # a CorruptShardError


def test_iterators_that_are_given_up_leave_no_threads(cluster, rows_dir):
    train = my_datasets.pipeline(
        "served_rows", service=cluster.url, columns=["id", "list"], batch_size=4, epochs=None,
        data_dir=rows_dir,
    )  # fmt: skip
    for _ in range(3):
        next(iter(train))
    until(lambda: all(one.name != "my_datasets-service" for one in threading.enumerate()))
