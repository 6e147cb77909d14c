"""The order of epochs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.input_pipeline.order import permutation
from my_datasets.input_pipeline.order.length_batching import LengthOrder
from my_datasets.input_pipeline.order.mixing import MixedOrder
from my_datasets.input_pipeline.order.permutation import Order, uniform

GOLDEN_SORTED = [3, 4, 1, 8, 0, 5, 9, 2, 6, 7]
GOLDEN_COMPUTED = [852171521, 742354083, 237469497, 5863706, 203352599]
GOLDEN_OF_VERSION_1 = [868099296, 975867247, 287197720, 281042340, 901985373]
GOLDEN_UNIFORM = [[0.445794, 0.863834], [0.906752, 0.262554], [0.834718, 0.248897]]


@pytest.fixture(params=["sorted", "computed"])
def way(request, monkeypatch):
    """Either way in which a permutation is made, for small sizes too."""
    if request.param == "computed":
        monkeypatch.setattr(permutation, "_SORTED", 0)
    return request.param


@pytest.mark.parametrize("size", [1, 2, 3, 5, 31, 32, 33, 1000, 4097])
def test_each_epoch_has_each_example_once(way, size):
    for epoch in range(3):
        found = Order(size, 7)(epoch, np.arange(size))
        assert sorted(found.tolist()) == list(range(size))


@given(st.integers(1, 10**12), st.integers(0, 2**64), st.integers(0, 10**6), st.data())
def test_places_may_be_asked_for_one_by_one(size, seed, epoch, data):
    if size > 10**6:
        places = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=9)))
    else:
        places = np.arange(min(size, 50))
    found = Order(size, seed)(epoch, places)
    assert found.min() >= 0
    assert found.max() < size
    assert len(set(found.tolist())) == len(set(places.tolist()))
    again = [Order(size, seed)(epoch, places[i : i + 1])[0] for i in range(len(places))]
    assert found.tolist() == again


def test_epochs_and_seeds_differ(way):
    places = np.arange(1000)
    orders = [Order(1000, seed)(epoch, places) for seed in (0, 1) for epoch in (0, 1)]
    for one, other in itertools.combinations(orders, 2):
        assert (one == other).sum() < 20


def test_without_a_seed_it_is_that_of_the_files():
    assert Order(10)(3, np.arange(10)).tolist() == list(range(10))


def test_it_is_the_same_for_ever():
    """A saved position means something only as long as the order stays what it was."""
    assert Order(10, 7)(0, np.arange(10)).tolist() == GOLDEN_SORTED
    assert Order(10**9, 7)(1, np.arange(5)).tolist() == GOLDEN_COMPUTED
    assert Order(10**9, 7, version=1)(1, np.arange(5)).tolist() == GOLDEN_OF_VERSION_1
    # Of up to 131,072 examples both versions are the same.
    for version in (1, 2):
        assert Order(10, 7, version)(0, np.arange(10)).tolist() == GOLDEN_SORTED
    assert np.allclose(uniform(7, 1, np.arange(3), 2), GOLDEN_UNIFORM, atol=1e-6)


def test_every_permutation_of_few_is_as_likely():
    """Chi-squared over the 24 permutations of 4; 99.9 % of uniform ones are below 49.7."""
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(24_000):
        found = tuple(Order(4, seed)(0, np.arange(4)).tolist())
        counts[found] = counts.get(found, 0) + 1
    assert len(counts) == 24
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 49.7


def test_neighbours_are_not_related(monkeypatch):
    """Correlations of n pairs are within 4 / sqrt(n) of 0 for a random permutation."""
    monkeypatch.setattr(permutation, "_SORTED", 0)
    n = 200_003
    found = Order(n, 3)(0, np.arange(n)).astype(float)
    for one, other in (
        (found[:-1], found[1:]),
        (found, np.arange(n)),
        (found[: n // 2], found[-(n // 2) :]),
    ):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(n)
    # How many of each tenth of the files come in each tenth of the epoch.
    table, _, _ = np.histogram2d(found, np.arange(n), bins=10)
    expected = n / 100
    assert ((table - expected) ** 2 / expected).sum() < 149  # 99.9 % of 99 degrees, less is better


def test_random_numbers_are_even():
    found = uniform(1, 0, np.arange(50_000), 3)
    assert found.dtype == np.float32
    assert found.min() >= 0
    assert found.max() < 1
    assert np.abs(found.mean(axis=0) - 0.5).max() < 0.01
    assert np.abs(np.corrcoef(found.T) - np.eye(3)).max() < 0.02
    assert (uniform(1, 1, np.arange(9), 1) != uniform(1, 0, np.arange(9), 1)).all()


def test_no_round_of_an_epoch_has_the_key_of_another():
    """In version 1 seven of eight keys of an epoch came again in the next one: a slide."""
    for version, distinct in ((2, 5 * 20 * 8), (1, 5 * (20 + 7))):
        keys = {
            key
            for seed in range(5)
            for epoch in range(20)
            for key in permutation._round_keys(seed, epoch, version)
        }
        assert len(keys) == distinct


def test_orders_that_are_made_of_others_have_their_version(monkeypatch):
    """All of them as they would be for many examples: for few, versions are the same."""
    monkeypatch.setattr(permutation, "_SORTED", 0)
    places = np.arange(62)
    for make in (
        lambda version: permutation.WindowOrder((31, 31), 2, 3, version=version),
        lambda version: permutation.WindowOrder((1,) * 62, 1, 3, version=version),
        lambda version: LengthOrder(Order(62, None), places % 7, 62, 4, 3, version),
        lambda version: MixedOrder((Order(62, None),) * 2, (31, 31), "first", 3, version),
    ):
        now = make(2)(1, places)
        with monkeypatch.context() as patch:
            patch.setattr(
                permutation, "_round_keys", lambda seed, epoch, _: permutation._keys(seed, epoch)
            )
            then = make(2)(1, places)
        assert not np.array_equal(now, then)
        assert np.array_equal(make(1)(1, places), then)


@pytest.mark.parametrize("size", [(1 << 17) + 1, 200_003, 1 << 18])
def test_epochs_of_many_are_permutations_that_are_not_related(size):
    """Correlations of n pairs are within 4 / sqrt(n) of 0, and cells of a table as full as others.

    The table has, for each tenth of one epoch, in which tenth of another its examples come.
    """
    places = np.arange(size)
    epochs = [Order(size, 11)(epoch, places) for epoch in range(4)]
    for found in epochs:
        assert np.array_equal(np.sort(found), places)
    inverses = [np.argsort(found) for found in epochs]
    for one, other in itertools.combinations(inverses, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(size)
        # Neither do steps from one example to the next go the same way.
        assert abs(np.corrcoef(np.diff(one), np.diff(other))[0, 1]) < 6 / np.sqrt(size)
        table, _, _ = np.histogram2d(one, other, bins=10)
        expected = size / 100
        assert ((table - expected) ** 2 / expected).sum() < 149
        # Few of them stay where they were: 1 is expected, 99.99 % of the time there are below 8.
        assert (one == other).sum() < 8
