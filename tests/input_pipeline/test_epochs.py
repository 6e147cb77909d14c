"""Which epochs the iterations over one pipeline are of."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

import my_datasets
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.frameworks.torch import TorchBatches
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.planner import mix, plan

ENTRY_POINTS = [my_datasets.batches, my_datasets.pipeline, my_datasets.torch_loader]
OPTIONS = {"columns": ["whole"], "batch_size": 30}


def once(batches, count=None):
    """Returns the numbers of the examples of an iteration."""
    return [
        n for one in itertools.islice(batches, count) for n in np.asarray(one["whole"]).tolist()
    ]


@pytest.fixture(scope="module")
def made(data_dir):
    return plan("everything", data_dir=data_dir, **OPTIONS)


@pytest.fixture(scope="module")
def epochs(data_dir):
    """The examples of the first ten epochs, in their order."""
    whole = my_datasets.batches("everything", data_dir=data_dir, epochs=10, **OPTIONS)
    return np.reshape(once(whole), (10, -1)).tolist()


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_iterating_again_is_the_next_epoch(made, epochs, entry_point):
    batches = entry_point(made)
    assert [once(batches) for _ in range(3)] == epochs[:3]
    assert len(batches) == 9
    # One that is given up in the middle, and one of which nothing was asked.
    assert once(batches, 2) == epochs[3][:60]
    iter(batches)
    assert once(batches) == epochs[4]
    batches.set_epoch(1)
    assert [once(batches) for _ in range(2)] == epochs[1:3]
    with pytest.raises(InvalidOptionError, match=r"set_epoch\(-1\)"):
        batches.set_epoch(-1)


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_iterators_at_the_same_time_are_of_different_epochs(made, epochs, entry_point):
    batches = entry_point(made)
    pairs = list(zip(batches, batches, strict=True))
    assert once(one for one, _ in pairs) == epochs[0]
    assert once(other for _, other in pairs) == epochs[1]


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_several_epochs_at_a_time(data_dir, epochs, entry_point):
    flat = [n for epoch in epochs for n in epoch]
    batches = entry_point("everything", epochs=3, data_dir=data_dir, **OPTIONS)
    assert [once(batches), once(batches)] == [flat[:750], flat[750:1500]]
    batches.set_epoch(3)
    assert once(batches) == flat[750:1500]
    with pytest.raises(InvalidOptionError, match="multiple of 3"):
        batches.set_epoch(2)
    for_ever = entry_point("everything", epochs=None, data_dir=data_dir, **OPTIONS)
    assert [once(for_ever, 12), once(for_ever, 12)] == [flat[:340], flat[250:590]]


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("count", [1, 3])
def test_a_saved_position_finishes_its_iteration_first(data_dir, epochs, entry_point, count):
    options = {"epochs": count, "data_dir": data_dir, **OPTIONS}
    first = my_datasets.batches("everything", **options)
    once(first)
    epoch = count + (count > 1)  # of the second iteration the first epoch, or the second
    for _ in zip(range(4 + 9 * (epoch - count)), first, strict=False):
        pass
    assert (first.state().epoch, first.state().position) == (epoch, 120)
    state = State.from_json(first.state().to_json())
    batches = entry_point("everything", state=state, **options)
    flat = [n for epoch in epochs for n in epoch]
    each = 250 * count
    assert once(batches) == flat[250 * epoch + 120 : 2 * each]
    assert once(batches) == flat[2 * each : 3 * each]
    assert len(batches) == 9 * count  # of a whole one: frameworks ask once
    # At the end of an iteration, it is the beginning of the next one.
    batches.set_epoch(0)
    ended = my_datasets.batches("everything", **options)
    once(ended)
    assert once(entry_point("everything", state=ended.state(), **options)) == flat[each : 2 * each]


def test_each_iterator_has_a_state_of_its_own(made, epochs):
    batches = my_datasets.batches(made)
    assert batches.state() == made.beginning
    one, other = iter(batches), iter(batches)
    next(one), next(one), next(one)
    next(other)
    assert (one.state().epoch, one.state().position) == (0, 90)
    assert (other.state().epoch, other.state().position) == (1, 30)
    assert batches.state() == other.state()  # of the one that began last
    next(one)
    assert batches.state() == other.state()
    for iterator in (one, other):
        rest = my_datasets.batches(made, state=iterator.state())
        assert once(rest) == once(iterator)
    assert iter(batches).state().epoch == 2


def test_keras_trains_on_another_order_in_each_epoch(made, epochs):
    """`fit` makes iterators of which it takes nothing: they count for nothing."""
    seen = []

    def seeing(batch):
        tf.py_function(lambda numbers: seen.extend(numbers.numpy().tolist()), [batch["whole"]], [])
        return tf.cast(batch["whole"], tf.float32)[:, None], tf.zeros_like(batch["whole"])

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    pipeline = my_datasets.pipeline(made)
    # By way of the pipeline itself, and of what is made of it.
    model.fit(pipeline.map(seeing), epochs=3, verbose=0)
    assert seen == [n for epoch in epochs[:3] for n in epoch]
    del seen[:]
    repeated = my_datasets.pipeline(made).map(seeing).repeat(2)
    for _ in repeated:
        pass
    assert seen == [n for epoch in epochs[:2] for n in epoch]
    assert len(repeated) == 18


def test_keras_resumes_from_a_saved_position(made, epochs):
    seen = []

    class Seeing(keras.Model):
        def train_step(self, batch):
            seen.extend(batch["whole"].numpy().tolist())
            return {"loss": 0.0}

    pipeline = my_datasets.pipeline(made, state=my_datasets.pipeline(made).state_after(9 + 5))
    model = Seeing()
    model.compile(run_eagerly=True)
    model.fit(pipeline, epochs=3, verbose=0)
    assert seen == epochs[1][150:] + epochs[2] + epochs[3]


def test_an_iterator_for_checkpoints_resumes_to_the_next_epoch(made, epochs, tmp_path):
    pipeline = my_datasets.pipeline(made)
    iterator = pipeline.iterator()
    assert once(iterator) == epochs[0]
    assert next(iterator, None) is None
    assert (iterator.state().epoch, iterator.state().position) == (1, 0)
    assert once(iterator, 4) == epochs[1][:120]
    path = tf.train.Checkpoint(data=iterator).save(tmp_path / "model")
    other = my_datasets.pipeline(made).iterator()
    once(other, 3)
    tf.train.Checkpoint(data=other).restore(path)
    assert once(other) == epochs[1][120:]
    assert once(other) == epochs[2]
    assert once(pipeline) == epochs[2]  # it counts with the others


@pytest.mark.integration
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_resume_to_the_next_epoch(made, epochs, persistent, method):
    ours = my_datasets.torch_loader(made, workers=2)
    loader = type(ours)(
        TorchBatches(made), batch_size=None, num_workers=2, persistent_workers=persistent,
        multiprocessing_context=method,
    )  # fmt: skip
    assert [once(loader), once(loader, 3), once(loader)] == [epochs[0], epochs[1][:90], epochs[2]]
    loader.set_epoch(0)
    assert [once(loader), once(loader)] == epochs[:2]


def test_a_loader_of_torch_gets_the_epoch(made, epochs):
    """Of worker processes that it starts itself nothing is known here."""
    dataset = TorchBatches(made)
    plain = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1)
    for epoch in (0, 1, 5):
        dataset.set_epoch(epoch)
        assert once(plain) == epochs[epoch]
    keeping = torch.utils.data.DataLoader(
        TorchBatches(made), batch_size=None, num_workers=2, persistent_workers=True
    )
    assert [once(keeping), once(keeping)] == epochs[:2]


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_hosts_begin_at_the_same_epochs(data_dir, epochs, entry_point):
    """However far each of them came in the one before."""
    hosts = [
        entry_point("everything", shard=(i, 2), data_dir=data_dir, **OPTIONS) for i in range(2)
    ]
    once(hosts[0], 1), once(hosts[1], 3)
    both = [once(host) for host in hosts]
    assert [n for pair in zip(*both, strict=True) for n in pair] == epochs[1]


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_what_is_cached_comes_in_another_order(data_dir, epochs, tmp_path, kind):
    place = {"cache_dir": tmp_path} if kind == "disk" else {}
    batches = my_datasets.batches("everything", cache=kind, data_dir=data_dir, **place, **OPTIONS)
    assert once(batches) == epochs[0]
    batches._engine._source._source = None  # nothing is decoded again
    assert [once(batches), once(batches)] == epochs[1:3]


@pytest.mark.parametrize("kind", ["mixed", "packed", "bucketed", "windows"])
def test_other_orders_resume_as_well(data_dir, kind):
    def of(epochs):
        options = {"epochs": epochs, "batch_size": 30}
        if kind == "mixed":
            parts = [plan("everything", split=one, columns=["whole"], data_dir=data_dir)
                     for one in ("train", "test")]  # fmt: skip
            return mix(parts, **options)
        more = {
            "packed": {"columns": ["list"], "pack": 16},
            "bucketed": {"columns": ["whole", "list"], "bucket_by": "list"},
            "windows": {"columns": ["whole"], "shuffle_window": 2},
        }[kind]
        return plan("everything", data_dir=data_dir, **more, **options)

    def values(batches):
        return [np.asarray(one.get("whole", one.get("list"))).tolist() for one in batches]

    whole, parts = my_datasets.batches(of(3)), my_datasets.batches(of(1))
    assert values(whole) == [one for _ in range(3) for one in values(parts)]
    assert values(my_datasets.pipeline(of(1)).repeat(3)) == values(my_datasets.batches(of(3)))


def test_augmentation_is_another_in_each_epoch(data_dir):
    def images(pipeline):
        found = {}
        for batch in pipeline:
            found.update(zip(batch["whole"].numpy().tolist(), batch["grey"].numpy(), strict=True))
        return np.stack([found[number] for number in sorted(found)])

    augment = my_datasets.augment.standard_image(saturation=0, seed=3)
    for shuffle in (True, False):  # also where the order is always the same
        pipeline = my_datasets.pipeline(
            "everything", columns=["whole", "grey"], augment=augment, shuffle=shuffle,
            data_dir=data_dir,
        )  # fmt: skip
        first, second = images(pipeline), images(pipeline)
        assert not np.allclose(first, second, atol=0.02)
        pipeline.set_epoch(0)
        assert np.allclose(images(pipeline), first, atol=1e-6)


def test_without_shuffling_it_is_the_same_order(data_dir):
    batches = my_datasets.batches("everything", split="test", data_dir=data_dir, **OPTIONS)
    stored = my_datasets.source("everything", split="test", data_dir=data_dir)
    assert once(batches) == once(batches) == [int(one["whole"]) for one in stored]
