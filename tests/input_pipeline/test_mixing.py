"""Several datasets as one."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import my_datasets
from my_datasets.errors import InvalidOptionError, PlanError
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.order.mixing import MixedOrder, MixedSource, shares
from my_datasets.input_pipeline.order.permutation import Order
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.planner import mix, plan
from my_datasets.input_pipeline.plan.stages import Cache
from my_datasets.metadata.features import Leaf

sizes_and_weights = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 9)), min_size=1,
                             max_size=5)  # fmt: skip


def order_of(parts, stop, seed=0):
    orders = tuple(Order(size, i) for i, (size, _) in enumerate(parts))
    weights = shares([size for size, _ in parts], [weight for _, weight in parts], 1)
    return MixedOrder(orders, weights, stop, seed)


def counts_of(numbers, parts):
    ends = np.cumsum([size for size, _ in parts])
    return np.bincount(np.searchsorted(ends, numbers, side="right"), minlength=len(parts))


@given(parts=sizes_and_weights, stop=st.sampled_from(["first", "all"]))
def test_an_epoch_ends_with_the_first_or_with_all(parts, stop):
    order = order_of(parts, stop)
    numbers = order(0, np.arange(order.size)) % sum(size for size, _ in parts)
    counts = counts_of(numbers, parts)
    sizes = np.array([size for size, _ in parts])
    if stop == "first":
        assert len(set(numbers.tolist())) == len(numbers)
        assert (counts <= sizes).all()
    else:
        assert set(numbers.tolist()) == set(range(sizes.sum()))
    wanted = np.array([weight for _, weight in parts]) / sum(weight for _, weight in parts)
    assert np.abs(counts - wanted * order.size).max() <= len(parts)
    at_end = order._counts(order.size)
    beyond = order._counts(order.size + 1 if stop == "first" else order.size - 1)
    if stop == "first":
        assert any(c > size for c, size in zip(beyond, sizes, strict=True))
    else:
        assert any(c < size for c, size in zip(beyond, sizes, strict=True))
    assert list(counts) == at_end


@given(parts=sizes_and_weights, epochs=st.integers(1, 4))
def test_each_dataset_resumes_through_the_epochs(parts, epochs):
    order = order_of(parts, "first")
    if not order.size:
        return
    numbers = np.concatenate([order(e, np.arange(order.size)) for e in range(epochs)])
    assert len(set(numbers.tolist())) == len(numbers)  # each time is another one
    numbers %= sum(size for size, _ in parts)
    begin = 0
    for i, (size, _) in enumerate(parts):
        mine = [n - begin for n in numbers.tolist() if begin <= n < begin + size]
        begin += size
        counts = np.bincount(mine, minlength=size)
        full, rest = divmod(len(mine), size)
        assert (counts >= full).all()
        # Those given once more are the first ones of its own next epoch.
        assert set(np.flatnonzero(counts > full)) == set(Order(size, i)(full, np.arange(rest)))


def test_any_part_of_an_epoch_is_a_fair_sample():
    order = order_of([(40_000, 1), (40_000, 3)], "first")
    numbers = order(0, np.arange(order.size))
    for host in range(4):
        mine = numbers[host::4][:10_000]
        share = (mine < 40_000).mean()
        assert abs(share - 0.25) < 0.015
    for begin in range(0, 40_000, 64):  # batches
        assert 2 <= (numbers[begin : begin + 64] < 40_000).sum() <= 34


@given(parts=sizes_and_weights, places=st.lists(st.integers(0, 10**6), max_size=20))
def test_places_may_be_asked_for_in_any_order(parts, places):
    order = order_of(parts, "all")
    whole = order(2, np.arange(order.size))
    some = np.array(places, np.int64) % order.size
    assert np.array_equal(order(2, some), whole[some])


@pytest.mark.parametrize(
    ("sizes", "weights", "temperature", "expected"),
    [
        ([100, 300], None, 1, [0.25, 0.75]), ([100, 300], [1, 1], 1, [0.5, 0.5]),
        ([100, 10_000], None, 2, [1 / 11, 10 / 11]), ([5, 5], [0.3, 0.7], 1, [0.3, 0.7]),
        ([1, 10**12], None, 100, [0.43, 0.57]),
    ],
)  # fmt: skip
def test_shares_are_those_of_weights_and_temperature(sizes, weights, temperature, expected):
    found = np.array(shares(sizes, weights, temperature))
    assert np.allclose(found / found.sum(), expected, atol=0.005)


@pytest.mark.parametrize(
    ("weights", "temperature"), [([1], 1), ([1, 0], 1), ([1, -2], 1), ([1, np.nan], 1), (None, 0)]
)
def test_what_cannot_be_is_said(weights, temperature):
    with pytest.raises(InvalidOptionError):
        shares([3, 4], weights, temperature)


def parts_of(data_dir, **options):
    return [
        plan(
            "everything", data_dir=data_dir, split=split, seed=7, shuffle=True,
            columns=["whole", "list", "text", "grey"], **options,
        )
        for split in ("train[:100]", "test")
    ]  # fmt: skip


def test_batches_of_two_datasets(data_dir):
    made = mix(parts_of(data_dir), weights=[3, 1], batch_size=16, epochs=2, seed=1)
    assert Plan.from_json(made.to_json()) == made
    assert "75.0%" in made.explain()
    seen = []
    for batch in my_datasets.batches(made):
        for i, number in enumerate(batch["whole"] + 100):
            assert bytes(batch["text"][i]) == b"text %d" % number * (number % 4)
            assert batch["list"][i].tolist() == list(range(number % 5))
            seen.append(int(number))
    assert len(seen) == 2 * 80  # 20 of the test split are a quarter
    counts = Counter(seen)
    assert {counts[n] for n in range(250, 270)} == {2}
    others = {n: count for n, count in counts.items() if n < 250}
    assert sum(others.values()) == 120
    assert len(others) == 100  # the second epoch goes on where the first one was
    train = my_datasets.pipeline(made)
    assert len(train) == 10
    for batch, other in zip(train, my_datasets.batches(made), strict=True):
        assert np.array_equal(batch["whole"].numpy(), other["whole"])
        assert batch["list"].to_list() == [row.tolist() for row in other["list"].rows()]


def test_it_resumes_where_it_was_on_other_hosts(data_dir):
    parts = parts_of(data_dir, cache="memory", epochs=2)
    assert any(isinstance(stage, Cache) for stage in parts[0].stages)
    whole = [b["whole"].tolist() for b in my_datasets.batches(mix(parts, batch_size=8, epochs=3))]
    state = Engine(mix(parts, batch_size=8, epochs=3)).batching.state_after(5)
    assert len(state.to_json()) <= 1024
    hosts = [
        [b["whole"].tolist() for b in my_datasets.batches(
            mix(parts, batch_size=4, epochs=3, shard=(i, 2)), state=state)]
        for i in range(2)
    ]  # fmt: skip
    together = [
        n for a, b in zip(*hosts, strict=True) for pair in itertools.zip_longest(a, b) for n in pair
    ]
    assert sorted(together[: len(whole[5]) * 3]) == sorted(n for one in whole[5:8] for n in one)
    with pytest.raises(PlanError, match="belongs to another plan"):
        Engine(mix(parts, batch_size=8, weights=[1, 1]), state)


def test_datasets_that_differ_are_refused(data_dir):
    one = plan("everything", data_dir=data_dir, columns=["whole"])
    for columns in (["wide"], ["whole", "text"]):
        with pytest.raises(PlanError, match="cannot be mixed"):
            mix([one, plan("everything", data_dir=data_dir, columns=columns)])
    with pytest.raises(InvalidOptionError, match="cannot be mixed"):
        mix([mix([one, one])])

    class Labelled:
        def __init__(self, *labels):
            self.tree = (Leaf(("x",), "number", "int64"), Leaf(("y",), "number", "int64",
                         labels=labels))  # fmt: skip

    with pytest.raises(PlanError, match=r"labelled cat, dog in the first, .*labelled dog, cat"):
        MixedSource((Labelled("cat", "dog"), Labelled("dog", "cat")), ("a", "b"))


def test_columns_keep_their_names_whatever_their_order(data_dir):
    columns = ["whole", "wide", "label"]
    parts = [
        plan("everything", data_dir=data_dir, columns=names) for names in (columns, columns[::-1])
    ]
    made = mix(parts, weights=[1, 1], batch_size=1, seed=4)
    for batch in my_datasets.pipeline(made).take(40):
        number = int(batch["whole"][0]) + 100
        assert np.isclose(float(batch["wide"][0]), number / 3 - 20)
        assert int(batch["label"][0]) == number % 4


def test_what_is_drawn_is_drawn_anew_each_time_a_dataset_comes_round(data_dir):
    options = {"data_dir": data_dir, "image_size": (9, 9), "crop": "random"}
    few = plan("photos", split="train[:2]", **options)
    made = mix([few, plan("photos", seed=1, **options)], weights=[1, 1], stop="all", batch_size=80)
    (batch,) = my_datasets.batches(made)
    images, _ = batch
    assert len(images) >= 79
    assert len({image.tobytes() for image in images}) == len(images)
