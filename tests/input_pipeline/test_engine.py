"""Which examples come in which batch, on any number of hosts, and after any interruption."""

import dataclasses
import hashlib
import itertools
import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import my_datasets
from my_datasets.errors import InvalidOptionError, PlanError
from my_datasets.input_pipeline.decode.pytree import size_of
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.order import permutation
from my_datasets.input_pipeline.order.batching import Batching
from my_datasets.input_pipeline.order.permutation import Order
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.planner import default_shuffle, mix, plan
from my_datasets.input_pipeline.plan.stages import (
    Batch,
    Cache,
    Mix,
    Prefetch,
    Read,
    Repeat,
    Shard,
    Shuffle,
)
from tests.input_pipeline.conftest import ROWS


def numbers_of(batching, epoch):
    """Returns the numbers of the examples of an epoch, a list for each batch."""
    found = []
    before = sum(batching.pieces(one) for one in range(batching.start.epoch, epoch))
    for number in range(before, before + batching.pieces(epoch)):
        piece = batching.piece(number)
        assert piece.epoch == epoch
        found += batching.numbers(piece).reshape(piece.batches, piece.rows).tolist()
    assert len(found) == batching.steps(epoch)
    return found


def bare(size, *stages, state=None, rows=64):
    """Returns the batches of a plan without data."""
    read = Read("d:1.0.0", "/nowhere", "train", size, "content")
    given = {type(stage): stage for stage in stages}
    rest = (Batch(4), Repeat(None), Prefetch(1, 1, rows))
    more = [stage for stage in rest if type(stage) not in given]
    made = Plan((read, *stages, *more))
    shuffle = made.get(Shuffle)
    order = Order(size, None if shuffle is None else shuffle.seed)
    return Batching.of(made, order, state, single=False)


@given(
    size=st.integers(1, 300), count=st.integers(1, 64), batch=st.integers(1, 40),
    seed=st.one_of(st.none(), st.integers(0, 9)), epoch=st.integers(0, 2),
    remainder=st.sampled_from(["pad", "drop", "keep"]), drops=st.booleans(),
)  # fmt: skip
def test_every_example_once_in_each_epoch(size, count, batch, seed, epoch, remainder, drops):
    order = () if seed is None else (Shuffle(seed),)
    hosts = [
        bare(size, *order, Shard(i, count, remainder), Batch(batch, drops)) for i in range(count)
    ]
    batches = [numbers_of(host, epoch) for host in hosts]
    given = [number for host in batches for one in host for number in one]
    sizes = {sum(map(len, host)) for host in batches}
    if remainder != "keep":
        assert len(sizes) == 1
    if drops:
        assert all(len(one) == batch for host in batches for one in host)
        if remainder != "pad":
            assert len(given) == len(set(given))
        return
    if remainder == "keep":
        assert sorted(given) == list(range(size))
    elif remainder == "drop":
        assert len(given) == len(set(given)) == size // count * count
    else:
        assert set(given) == set(range(size))
        assert len(given) == -(-size // count) * count
    # Side by side, the hosts give the one order of the epoch.
    whole = bare(size, *order, Batch(size))
    (in_order,) = numbers_of(whole, epoch)
    flat = [[number for one in host for number in one] for host in batches]
    together = [n for place in itertools.zip_longest(*flat) for n in place if n is not None]
    assert together[: min(size, len(together))] == in_order[: len(together)]


@given(
    size=st.integers(1, 200), count=st.integers(1, 5), batch=st.integers(1, 30),
    steps=st.integers(0, 60), new_count=st.integers(1, 5), new_batch=st.integers(1, 30),
    seed=st.one_of(st.none(), st.just(3)),
)  # fmt: skip
def test_it_resumes_where_it_was_on_other_hosts(
    size, count, batch, steps, new_count, new_batch, seed
):
    order = () if seed is None else (Shuffle(seed),)
    engines = [bare(size, *order, Shard(i, count), Batch(batch)) for i in range(count)]
    states = {engine.state_after(steps) for engine in engines}
    assert len(states) == 1  # all hosts save the same
    (state,) = states
    assert State.from_json(state.to_json()) == state
    assert len(state.to_json()) <= 1024
    seen = [n for engine in engines for n in given_until(engine, steps) if n[0] == state.epoch]
    resumed = [
        bare(size, *order, Shard(i, new_count, "keep"), Batch(new_batch), state=state)
        for i in range(new_count)
    ]
    rest = [n for host in resumed for one in numbers_of(host, state.epoch) for n in one]
    assert len(rest) == size - state.position
    if state.position < size:
        assert {n for _, n in seen} | set(rest) == set(range(size))
        assert not {n for _, n in seen} & set(rest)
    after = [n for host in resumed for one in numbers_of(host, state.epoch + 1) for n in one]
    assert sorted(after) == list(range(size))


def given_until(engine, steps):
    """Yields (epoch, number) of all examples of the first batches."""
    for epoch in itertools.count():
        for one in numbers_of(engine, epoch):
            if not steps:
                return
            steps -= 1
            yield from ((epoch, number) for number in one)


@given(
    size=st.integers(1, 200), batch=st.integers(1, 30), rows=st.integers(1, 100),
    drops=st.booleans(), position=st.integers(0, 200), epochs=st.integers(1, 4),
)  # fmt: skip
def test_pieces_may_be_asked_for_one_by_one(size, batch, rows, drops, position, epochs):
    first = bare(size, Shuffle(1))
    state = dataclasses.replace(first.start, position=min(position, size))
    engine = bare(
        size, Shuffle(1), Batch(batch, drops), Repeat(epochs), Prefetch(1, 1, rows), state=state
    )
    pieces = [engine.piece(i) for i in range(engine.total_pieces)]
    assert engine.total_steps == sum(piece.batches for piece in pieces)
    for epoch in range(epochs):
        mine = [piece for piece in pieces if piece.epoch == epoch]
        places = [piece.first + i for piece in mine for i in range(piece.batches * piece.rows)]
        left = engine.examples(epoch)
        assert places == list(range(left - left % batch if drops else left))
        assert all(piece.batches == 1 or piece.rows == batch for piece in mine)


@settings(max_examples=15)
@given(st.integers(0, 40))
def test_real_batches_resume_where_they_were(data_dir, steps):
    made = plan("everything", data_dir=data_dir, batch_size=16, epochs=3, columns=["whole"], seed=5)
    batches = my_datasets.batches(made)
    first = [batch["whole"].tolist() for batch in itertools.islice(batches, steps)]
    state = batches.state() if steps else made.beginning
    rest = [batch["whole"].tolist() for batch in my_datasets.batches(made, state=state)]
    assert first + rest == [batch["whole"].tolist() for batch in my_datasets.batches(made)]


def test_values_are_those_of_their_examples(data_dir):
    for options in ({}, {"cache": "memory", "epochs": 2}, {"workers": 3, "batch_size": 7}):
        batches = my_datasets.batches(
            "everything", data_dir=data_dir, as_supervised=False, **options
        )
        count = 0
        for batch in batches:
            for i, number in enumerate(batch["whole"] + 100):
                assert bytes(batch["text"][i]) == b"text %d" % number * (number % 4)
                wanted = [[number] * n for n in range(number % 4)]
                assert [row.tolist() for row in batch["nested"].rows()[i]] == wanted
                assert batch["list"][i].tolist() == list(range(number % 5))
                assert batch["inner"]["y"]["z"][i] == b"%d" % number
                count += 1
        assert count == ROWS * options.get("epochs", 1)


def test_the_plan_is_a_value(data_dir):
    made = plan("everything", data_dir=data_dir, batch_size=16, shard=(1, 3), cache="memory")
    assert Plan.from_json(made.to_json()) == made
    assert eval(repr(made), vars(my_datasets.input_pipeline.plan.stages) | {"Plan": Plan}) == made
    lines = made.explain().splitlines()
    assert [line.split()[0] for line in lines] == [
        "read", "shuffle", "shard", "decode", "cache", "batch", "repeat", "prefetch"
    ]  # fmt: skip
    assert "250 examples of everything:1.2.0" in lines[0]
    assert "part 1 of 3" in lines[2]
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.stages = ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"shard": (3, 3)}, "no part 3 of 3"),
        ({"shard": "all"}, "use 'auto'"),
        ({"remainder": "round", "shard": (0, 2)}, "remainder='round'"),
        ({"cache": "tape"}, "cache='tape'"),
        ({"cache": "disk"}, "cache_dir"),
        ({"memory": "1KB"}, "is too little"),
        ({"memory": "many"}, "such as '500M'"),
        ({"cache": "memory", "memory": "200kB", "as_supervised": False}, "too much to cache"),
        ({"image_size": (0, 5)}, "is not a size"),
        ({"image_dtype": "float16"}, "image_dtype='float16'"),
        ({"workers": 0}, "workers=0"),
        ({"split": "train[:0]"}, "has no examples"),
        ({"batch_size": 251, "drop_remainder": True}, "No batch of 251"),
        ({"shard": (0, 300), "remainder": "drop"}, "has 0 examples"),
    ],
)
def test_what_cannot_be_is_said(data_dir, options, said):
    with pytest.raises(InvalidOptionError, match=said):
        plan("everything", data_dir=data_dir, **options)


def test_a_state_of_another_plan_is_refused(data_dir, tmp_path):
    made = plan("everything", data_dir=data_dir)
    state = Engine(made).batching.state_after(2)
    for other, said in (
        ({"seed": 1}, "Expected: order 'seed 1'\n  Found: order 'seed 0'"),
        ({"split": "train[:100]"}, "Found: split 'train'"),
        ({"shuffle": False}, "Expected: order 'as stored'"),
    ):
        with pytest.raises(PlanError, match=f"belongs to another plan(.|\n)*{said}"):
            Engine(plan("everything", data_dir=data_dir, **other), state)
    again = plan("everything", data_dir=data_dir, batch_size=7, shard=(0, 2), cache="memory")
    assert Engine(again, state).batching.start == state
    moved = shutil.copytree(data_dir, tmp_path / "elsewhere")
    assert Engine(plan("everything", data_dir=moved), state).batching.start == state
    with pytest.raises(PlanError, match="not a saved position"):
        State.from_json("[]")
    with pytest.raises(PlanError, match="not a plan"):
        Plan.from_json('{"format": 99}')


def of_first_version(state, **changes):
    """Returns a state as it was saved before states had a seed and a version, as text."""
    names = ("dataset", "split", "content", "order", "epoch", "position")
    return json.dumps({name: getattr(state, name) for name in names} | changes)


def numbers(batches, count=None):
    return [batch["whole"].tolist() for batch in itertools.islice(batches, count)]


@pytest.mark.parametrize("sizes", ["sorted", "computed"])
def test_a_state_resumes_in_the_order_in_which_it_was_saved(data_dir, monkeypatch, sizes):
    if sizes == "computed":  # as of more examples than are sorted: there the order is another one
        monkeypatch.setattr(permutation, "_SORTED", 0)
    made = plan("everything", data_dir=data_dir, columns=["whole"], epochs=2, batch_size=10)
    assert made.beginning.order_version == 2
    first = State.from_json(of_first_version(made.beginning))
    assert (first.order_version, first.seed) == (1, 0)
    with monkeypatch.context() as patch:  # what that version of the package gave
        patch.setattr(
            permutation, "_round_keys", lambda seed, epoch, version: permutation._keys(seed, epoch)
        )
        old = numbers(my_datasets.batches(made))
    assert (old == numbers(my_datasets.batches(made))) is (sizes == "sorted")
    assert numbers(my_datasets.batches(made, state=first)) == old
    batches = my_datasets.batches(made, state=State.from_json(of_first_version(first, position=30)))
    assert numbers(batches, 5) == old[3:8]
    again = State.from_json(batches.state().to_json())
    assert (again.position, again.order_version) == (80, 1)
    assert numbers(my_datasets.batches(made, state=again)) == old[8:]
    tensors = my_datasets.pipeline(made, state=again)
    assert [batch["whole"].numpy().tolist() for batch in tensors] == old[8:]
    mixed = mix([made, made], batch_size=10)
    parts = [of_first_version(Plan(part).beginning) for part in mixed.the(Mix).parts]
    assert mixed.beginning.content == hashlib.sha256("\n".join(parts).encode()).hexdigest()
    state = State.from_json(of_first_version(Engine(mixed).batching.state_after(2)))
    assert Engine(mixed, state).batching.start.position == 20  # its hash is that of old states


def test_a_state_of_a_later_version_is_refused(data_dir):
    state = plan("everything", data_dir=data_dir).beginning
    for changes in ({"order_version": 3}, {"epoch": -1}, {"mood": "good"}):
        text = json.dumps(json.loads(state.to_json()) | changes)
        with pytest.raises(PlanError, match="not a saved position"):
            State.from_json(text)


def test_no_seed_is_a_random_one_that_plan_and_state_name(data_dir):
    options = {"data_dir": data_dir, "columns": ["whole"], "batch_size": 10}
    made = plan("everything", seed=None, **options)
    seed = made.the(Shuffle).seed
    assert seed is not None
    assert f"seed {seed}" in made.explain()
    assert plan("everything", seed=None, **options).the(Shuffle).seed != seed
    whole = numbers(my_datasets.batches(made))
    assert whole == numbers(my_datasets.batches("everything", seed=seed, **options))
    assert [number for batch in whole for number in batch] != list(range(-100, 150))
    batches = my_datasets.batches(made)
    assert numbers(batches, 4) == whole[:4]
    assert batches.state().seed == seed
    state = State.from_json(batches.state().to_json())
    for entry_point in (my_datasets.batches, my_datasets.pipeline, my_datasets.torch_loader):
        rest = entry_point("everything", seed=None, state=state, **options)
        assert [np.asarray(batch["whole"]).tolist() for batch in rest] == whole[4:]
    in_part = my_datasets.batches("everything", seed=None, state=state, shard=(0, 2), **options)
    assert numbers(in_part, 1)[0] == [n for batch in whole[4:] for n in batch][:20:2]


def test_a_saved_position_contains_its_seed(data_dir):
    """Wherever another one was drawn: in a plan, in a mixture, for a checkpoint."""
    crop = {"columns": ["whole", "grey"], "image_size": (3, 3), "crop": "random"}
    options = {"columns": ["whole"], "batch_size": 40, "data_dir": data_dir}

    def mixed():
        parts = [plan("everything", split=one, **options) for one in ("train", "test")]
        return mix(parts, batch_size=40, seed=None)

    def of_names():
        return mix([path, path], batch_size=40, seed=None)

    def cropped():
        return plan("everything", seed=None, shuffle=False, **{**options, **crop})

    drawn = [plan("everything", split=one, seed=None, **options) for one in ("train", "train[:9]")]

    def of_drawn():
        return mix(drawn, batch_size=40, seed=None)

    (path,) = (data_dir / "everything").glob("[0-9]*")
    makes = (lambda: plan("everything", seed=None, **options), mixed, of_names, cropped, of_drawn)
    for make in makes:
        assert make().beginning.seed != make().beginning.seed
        batches = my_datasets.batches(make())
        iterator = iter(batches)
        next(iterator)
        state, rest = iterator.state(), list(iterator)
        assert f"seed {state.seed}" in batches.plan.explain()
        resumed = list(my_datasets.batches(make(), state=state))
        for one, other in zip(rest, resumed, strict=True):
            names = one if isinstance(one, dict) else range(len(one))
            assert all(np.array_equal(one[name], other[name]) for name in names)
        assert my_datasets.Plan.from_json(batches.plan.to_json()) == batches.plan


def test_a_position_with_another_seed_says_which(data_dir):
    options = {"columns": ["whole"], "data_dir": data_dir}
    state = plan("everything", seed=7, **options).beginning
    with pytest.raises(PlanError, match="give seed=7, that of the position"):
        my_datasets.batches("everything", seed=8, state=state, **options)
    with pytest.raises(PlanError, match="give seed=7, that of the position"):
        my_datasets.batches(plan("everything", seed=8, **options), state=state)


def test_a_mixture_of_an_earlier_version_without_a_seed_says_what_to_do(data_dir):
    made = mix([plan("everything", data_dir=data_dir)] * 2)
    order = made.beginning.order.replace("seed 0", "seed None")
    old = of_first_version(made.beginning, order=order)
    with pytest.raises(PlanError, match="did not shuffle mixtures with seed=None"):
        my_datasets.batches(made, state=old)


def test_a_random_seed_of_each_host_is_refused(data_dir):
    options = {"data_dir": data_dir, "seed": None}
    with pytest.raises(InvalidOptionError, match=r"differ between hosts(.|\n)*same number"):
        plan("everything", shard=(1, 2), **options)
    made = plan("everything", data_dir=data_dir)
    with pytest.raises(InvalidOptionError, match="differ between hosts"):
        mix([made, made], seed=None, shard=(1, 2))
    assert mix([made, made], seed=None).beginning.seed is not None
    plan("everything", shard=(0, 1), **options)
    plan("everything", split="test", shard=(1, 2), **options)  # there nothing is drawn


def test_what_was_not_shuffled_resumes_so(data_dir):
    """Until the second version, seed=None was no shuffling, and so were splits not named train."""
    options = {"data_dir": data_dir, "columns": ["whole"], "batch_size": 10}
    stored = plan("everything", shuffle=False, **options)
    wanted = numbers(my_datasets.batches(stored))
    for saved in ("as stored", "seed None", "seed None, 4 shards"):
        text = of_first_version(stored.beginning, order=saved, position=30)
        batches = my_datasets.batches(
            "everything", seed=None, state=State.from_json(text), **options
        )
        assert numbers(batches) == wanted[3:]
    both = {**options, "split": "train[:50%]+test"}
    state = plan("everything", shuffle=False, **both).beginning
    old = State.from_json(of_first_version(state))
    assert my_datasets.batches("everything", state=old, **both).plan.the(Shuffle).seed is None
    with pytest.raises(PlanError, match="another plan"):
        my_datasets.batches("everything", state=state, **both)
    negative = State.from_json(
        of_first_version(plan("everything", **options).beginning, order="seed -1")
    )
    list(my_datasets.batches("everything", seed=2**64 - 1, state=negative, **options))


@pytest.mark.parametrize(
    ("split", "is_shuffled"),
    [
        ("train", True), ("train[:80%]", True), ("train+test", True), ("test+train", True),
        ("train[:50%]+test", True), ("test + train[:5]", True), ("test", False), ("all", True),
        ("test[5:]", False), ("test+test[:50%]", False),
    ],
)  # fmt: skip
def test_all_but_evaluation_splits_are_shuffled(data_dir, split, is_shuffled):
    made = plan("everything", split=split, data_dir=data_dir)
    assert (made.the(Shuffle).seed is not None) is is_shuffled
    (line,) = [line for line in made.explain().splitlines() if line.startswith("shuffle")]
    assert f"shuffle=None {'shuffles' if is_shuffled else 'does not shuffle'} {split!r}" in line
    assert "test*, val*, dev*, eval*" in line
    for shuffle in (True, False):
        asked = plan("everything", split=split, shuffle=shuffle, data_dir=data_dir)
        assert (asked.the(Shuffle).seed is not None) is shuffle
        assert "shuffle=None" not in asked.explain()


def test_the_rule_is_about_how_names_begin():
    for names, is_shuffled in (
        (["fold_1", "fold_1+fold_2", "unlabelled", "train_extra", "corrected_train", "contest"], 1),
        (["val", "valid", "validation_matched", "dev-clean", "Test", "eval2", "test1+val"], 0),
    ):
        for name in names:
            assert default_shuffle(name)[0] is bool(is_shuffled), name


def test_a_plan_of_other_data_is_refused(data_dir):
    made = plan("everything", data_dir=data_dir)
    read = dataclasses.replace(made.stages[0], content="other")
    with pytest.raises(PlanError, match="holds other data"):
        Engine(Plan((read, *made.stages[1:])))


def test_memory_bounds_prefetched_batches(data_dir):
    options = {"data_dir": data_dir, "workers": 8, "as_supervised": False}
    example = size_of(my_datasets.source("everything", data_dir=data_dir).columns(range(250))) / 250
    free = plan("everything", **options).the(Prefetch)
    for memory in (10_000_000, 1_000_000, 250_000):
        tight = plan("everything", memory=memory, **options).the(Prefetch)
        held = (tight.workers + tight.ahead) * tight.rows * example
        assert held < 1.2 * memory
        assert (tight.workers, tight.rows) < (free.workers, free.rows)


def test_memory_bounds_the_cache_and_prefetched_batches_together(data_dir):
    options = {"data_dir": data_dir, "workers": 8, "as_supervised": False, "epochs": None}
    example = size_of(my_datasets.source("everything", data_dir=data_dir).columns(range(250))) / 250
    memory = int(2.2 * 250 * example)
    made = plan("everything", memory=memory, cache="memory", batch_size=4, **options)
    prefetch, cache = made.the(Prefetch), made.the(Cache)
    held = (prefetch.workers + prefetch.ahead) * prefetch.rows * example
    assert held + cache.bytes_ < memory
