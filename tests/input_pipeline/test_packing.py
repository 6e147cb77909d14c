"""Rows of tokens, and batches of examples of about the same length."""

from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import my_datasets
from my_datasets.errors import FeatureError, InvalidOptionError, PlanError
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.order.length_batching import LengthOrder, PackedSource, cut, fitted
from my_datasets.input_pipeline.order.permutation import Order
from my_datasets.input_pipeline.plan.planner import plan
from my_datasets.metadata.features import Leaf

lists = st.lists(st.integers(0, 12), max_size=40)


class Lists:
    """Examples whose tokens tell which they are, and where they stand."""

    skipped = 0
    tree = MappingProxyType({"x": Leaf(("x",), "number", "int32", (), (None,))})

    def __init__(self, lengths):
        self.lengths = np.array(lengths, np.int64)

    def columns(self, numbers, _):
        some = self.lengths[numbers]
        values = [n * 100 + i for n, count in zip(numbers, some, strict=True) for i in range(count)]
        return {"x": Ragged(np.array(values, np.int32), (some,))}


@given(lengths=lists, length=st.integers(1, 15), splits=st.booleans(), seed=st.integers(0, 9))
def test_every_token_is_in_one_row(lengths, length, splits, seed):
    source = Lists(lengths)
    if not splits and max(lengths, default=0) > length:
        with pytest.raises(InvalidOptionError, match="longer than a row"):
            fitted(source.lengths, length)
        return
    rows = (cut if splits else fitted)(source.lengths, length)
    packed = PackedSource(source, source.tree["x"], rows, length)
    numbers = np.random.default_rng(seed).permutation(len(rows))
    found = packed.columns(numbers, 0)
    assert found["x"].shape == (len(rows), length)
    seen = found["x"][found["segments"] > 0].tolist()
    expected = [n * 100 + i for n, count in enumerate(lengths) for i in range(count)]
    assert sorted(seen) == expected
    assert (found["positions"][found["segments"] > 0] == np.array(seen, int) % 100).all()
    assert (found["x"][found["segments"] == 0] == 0).all()
    for tokens, segments in zip(found["x"], found["segments"], strict=True):
        used = segments[segments > 0]
        assert (segments[: len(used)] == used).all()  # padding comes last
        assert used.tolist() == sorted(used)
        examples = [set((tokens[segments == s] // 100).tolist()) for s in set(used.tolist())]
        assert all(len(one) == 1 for one in examples)
    if splits and len(rows):
        in_order = packed.columns(np.arange(len(rows)), 0)
        assert in_order["x"].reshape(-1)[: len(expected)].tolist() == expected
    if not splits:
        assert len(rows) <= max(1, 2 * -(-sum(lengths) // length))


def test_nearly_nothing_is_padding():
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.geometric(1 / 90, 20_000), 512)
    rows = fitted(lengths, 512)
    assert lengths.sum() / (512 * len(rows)) > 0.99


@given(
    lengths=st.lists(st.integers(0, 50), min_size=1, max_size=200), group=st.integers(1, 7),
    groups=st.integers(1, 9), epoch=st.integers(0, 3),
)  # fmt: skip
def test_those_of_a_length_come_together(lengths, group, groups, epoch):
    all_lengths = np.array(lengths, np.int64)
    order = LengthOrder(Order(len(lengths), 3), all_lengths, group * groups, group, 3)
    numbers = order(epoch, np.arange(order.size))
    assert sorted(numbers.tolist()) == list(range(len(lengths)))
    before = order.order(epoch, np.arange(order.size))
    for begin in range(0, len(lengths), order.window):
        some = numbers[begin : begin + order.window]
        assert set(some.tolist()) == set(before[begin : begin + order.window].tolist())
        in_order = np.sort(all_lengths[some])
        for first in range(0, len(some), group):
            one = np.sort(all_lengths[some[first : first + group]])
            at = np.searchsorted(in_order, one[0])
            places = range(at, len(in_order) - len(one) + 1)
            assert any(np.array_equal(in_order[i : i + len(one)], one) for i in places)
    places = np.random.default_rng(epoch).permutation(order.size)
    assert np.array_equal(order(epoch, places), numbers[places])


def test_batches_of_about_the_same_length(data_dir):
    def lengths(**options):
        batches = my_datasets.batches(
            "everything", data_dir=data_dir, columns=["whole", "binary"], batch_size=10, seed=2,
            **options,
        )  # fmt: skip
        found = [[len(one) for one in batch["binary"]] for batch in batches]
        assert sum(map(len, found)) == 250
        return found

    plain, bucketed = lengths(), lengths(bucket_by="binary")
    spread = [max(one) - min(one) for one in bucketed]
    assert np.mean(spread) < 1.5
    assert np.mean([max(one) - min(one) for one in plain]) > 5
    firsts = [one[0] for one in bucketed]
    assert firsts != sorted(firsts)
    made = plan("everything", data_dir=data_dir, columns=["binary"], bucket_by="binary")
    assert "similar length of 'binary'" in made.explain()
    with pytest.raises(FeatureError, match=r"lists \[.*'texts'.*texts \[.*'binary'"):
        plan("everything", data_dir=data_dir, bucket_by="whole", as_supervised=False)
    with pytest.raises(InvalidOptionError, match="bucket_window"):
        plan("everything", data_dir=data_dir, bucket_by="binary", bucket_window=100)


def test_packed_batches(data_dir):
    made = plan("everything", data_dir=data_dir, columns=["list"], pack=8, batch_size=16, epochs=2)
    batches = list(my_datasets.batches(made))
    rows = np.concatenate([batch["list"] for batch in batches])
    segments = np.concatenate([batch["segments"] for batch in batches])
    assert rows.shape[1] == 8
    assert (segments > 0).sum() == 2 * sum(i % 5 for i in range(250))
    train = my_datasets.pipeline(made)
    assert train.element_spec["segments"].shape == (None, 8)
    for batch, other in zip(train, batches, strict=True):
        assert np.array_equal(batch["list"].numpy(), other["list"])
    state = Engine(made).batching.state_after(3)
    rest = list(my_datasets.batches(made, state=state))
    assert np.array_equal(rest[0]["list"], batches[3]["list"])
    other = plan("everything", data_dir=data_dir, columns=["list"], pack=9)
    with pytest.raises(PlanError, match="rows of 9"):
        Engine(other, state)
    for options, said in (
        ({"pack": 8, "bucket_by": "list"}, "one length"), ({"pack_split": True}, "give pack"),
    ):  # fmt: skip
        with pytest.raises(InvalidOptionError, match=said):
            plan("everything", data_dir=data_dir, columns=["list"], **options)
    with pytest.raises(InvalidOptionError, match="no effect with pack"):
        plan("everything", data_dir=data_dir, columns=["list"], pack=8, shuffle_window=2)
    for options in ({"columns": ["whole"]}, {"columns": ["list", "text"]}, {}):
        with pytest.raises(InvalidOptionError, match="one feature of everything"):
            plan("everything", data_dir=data_dir, pack=8, **options)


def test_ragged_columns_are_padded_and_indexed():
    one = Ragged(np.arange(6), (np.array([1, 0, 3, 2]),))
    assert one.padded(-1).tolist() == [[0, -1, -1], [-1, -1, -1], [1, 2, 3], [4, 5, -1]]
    assert one.padded(multiple=4).shape == (4, 4)
    two = Ragged(np.arange(6), (np.array([2, 0, 1]), np.array([1, 2, 3])))
    assert two.padded().tolist() == [[[0, 0, 0], [1, 2, 0]], [[0] * 3] * 2, [[3, 4, 5], [0] * 3]]
    taken = two.take(np.array([2, 0, 2]))
    assert [[v.tolist() for v in row] for row in taken.rows()] == [
        [[3, 4, 5]], [[0], [1, 2]], [[3, 4, 5]]
    ]  # fmt: skip


def test_examples_of_any_length_are_left_out(data_dir):
    """Where batches must be whole: not always the longest."""
    options = {"columns": ["whole"], "batch_size": 60, "drop_remainder": True, "epochs": 30}
    seen = [0] * 250
    for batch in my_datasets.batches(
        "everything", data_dir=data_dir, bucket_by="binary", columns=["whole", "binary"],
        **{name: value for name, value in options.items() if name != "columns"},
    ):  # fmt: skip
        for number in batch["whole"] + 100:
            seen[number] += 1
    assert min(seen) > 0
