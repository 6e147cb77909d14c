"""Distributions, distinct values and texts against NumPy and Python's own."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from my_datasets.records.tf_example.columns import PADDING
from my_datasets.statistics.sketches import Distinct, Distribution, Top, of_numbers
from my_datasets.statistics.values import LabelStatistics, NumberStatistics, TextStatistics, hashed

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
SHARES = [0, 0.01, 0.25, 0.5, 0.9, 1]


def of(numbers, *, whole=False, parts=1):
    found = Distribution(whole=whole)
    for part in np.array_split(np.asarray(numbers), parts):
        one = Distribution(whole=whole)
        one.add(part)
        found.merge(one)
    return found


def same(one, other):
    return (
        one.level == other.level
        and np.array_equal(one.buckets, other.buckets)
        and np.array_equal(one.counts, other.counts)
        and (one.count, one.least, one.most) == (other.count, other.least, other.most)
    )


@given(st.lists(FINITE, min_size=1, max_size=300))
def test_quantiles_of_few_numbers_are_exact(numbers):
    numbers = np.array(numbers) + 0.0  # one zero
    expected = np.quantile(numbers, SHARES, method="inverted_cdf")
    assert of(numbers).quantiles(SHARES) == expected.tolist()


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=300))
def test_and_so_are_those_of_whole_numbers(numbers):
    expected = np.quantile(np.array(numbers), SHARES, method="inverted_cdf")
    assert of(numbers, whole=True).quantiles(SHARES) == expected.tolist()


@pytest.mark.parametrize(
    "numbers",
    [
        np.random.default_rng(1).normal(size=50_000),
        np.exp(4 * np.random.default_rng(2).normal(size=50_000)),
        np.random.default_rng(3).integers(1_600_000_000, 1_610_000_000, 50_000),
        -np.random.default_rng(4).random(50_000) * 1e-300,
    ],
)  # fmt: skip
def test_quantiles_of_many_are_near_in_rank(numbers):
    ranked = np.sort(numbers)
    for share, found in zip(SHARES, of(numbers).quantiles(SHARES), strict=True):
        low, high = np.searchsorted(ranked, [found, np.nextafter(found, np.inf)]) / len(ranked)
        assert low - 0.005 <= share <= high + 0.005


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 9), st.floats(-300, 300))
def test_any_parts_in_any_order_add_up_to_the_same(seed, parts, scale):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=12_000) * 10.0**scale
    whole = of(numbers)
    assert len(whole.buckets) <= 4096
    shuffled = of(rng.permutation(numbers), parts=parts)
    assert same(whole, shuffled)
    assert float(shuffled.mean) == pytest.approx(float(whole.mean), rel=1e-6, abs=abs(whole.most))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.floats(-1e9, 1e9))
def test_means_and_deviations_far_from_zero(numbers, offset):
    numbers = np.array(numbers) + offset
    found = of(numbers, parts=3) if len(numbers) > 3 else of(numbers)
    assert float(found.mean) == pytest.approx(numbers.mean(), rel=1e-9, abs=1e-6)
    assert found.deviation == pytest.approx(numbers.std(), rel=1e-6, abs=1e-5)


@given(st.lists(FINITE, min_size=1, max_size=200), st.integers(1, 30))
def test_histograms_hold_all_numbers(numbers, bins):
    edges, counts = of(numbers).histogram(bins)
    assert sum(counts) == len(numbers)
    assert edges == sorted(edges)
    assert (edges[0], edges[-1]) == (min(numbers), max(numbers))


@pytest.mark.parametrize(
    "numbers",
    [np.array([2**64 - 1, 2**64 - 2**12] * 3000, np.uint64), np.array([-128, 127] * 3000, np.int8)],
)
def test_many_numbers_of_a_small_range(numbers):
    found = of(numbers, whole=True)
    assert (found.least, found.most) == (float(numbers.min()), float(numbers.max()))
    assert found.counts.tolist() == [3000, 3000]
    assert float(found.mean) == pytest.approx(numbers.astype(float).mean())


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**53, 2**52 - 1, 0])
def test_whole_numbers_that_are_all_the_same(number):
    found = of(np.array([number] * 3, np.uint64), whole=True)
    edges, counts = found.histogram(20)
    assert counts == [3]
    assert edges[0] <= float(number) <= edges[1]
    assert found.quantiles([0, 0.5, 1]) == [float(number)] * 3


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50), st.integers(1, 30))
def test_histograms_of_any_whole_numbers(numbers, bins):
    edges, counts = of(np.array(numbers, np.int64), whole=True).histogram(bins)
    assert sum(counts) == len(numbers)
    assert edges == sorted(edges)
    assert edges[0] <= float(min(numbers))
    assert float(max(numbers)) <= edges[-1]


def test_whole_numbers_have_a_bin_each():
    assert of([1, 1, 3], whole=True).histogram(20) == ([0.5, 1.5, 2.5, 3.5], [2, 0, 1])


@given(st.lists(st.one_of(FINITE, st.integers(-(2**53), 2**53)), max_size=200))
def test_few_distinct_numbers_are_counted(numbers):
    found = Distinct()
    for one in numbers:
        found.add(of_numbers(np.array([float(one)])))
    assert found.is_exact
    assert found.number == len({float(one) + 0.0 for one in numbers})


@pytest.mark.parametrize("number", [10_000, 300_000])
def test_many_are_estimated_and_their_order_does_not_matter(number):
    numbers = np.random.default_rng(0).random(number)
    once, parts = Distinct(), Distinct()
    once.add(of_numbers(np.tile(numbers, 2)))
    for part in np.array_split(numbers[::-1], 17):
        other = Distinct()
        other.add(of_numbers(part))
        parts.merge(other)
    assert np.array_equal(once.smallest, parts.smallest)
    assert once.number == pytest.approx(number, rel=5 / np.sqrt(4094))


def places(texts):
    data = np.frombuffer(b"".join([b"xyz", *texts, bytes(PADDING)]), np.uint8)
    sizes = np.array([len(text) for text in texts], np.int64)
    stops = np.cumsum(sizes) + 3
    return data, stops - sizes, stops


@given(st.lists(st.one_of(st.binary(max_size=40), st.binary(min_size=250, max_size=270))))
def test_hashes_of_texts_are_those_of_their_bytes(texts):
    hashes, is_ascii = hashed(*places(texts))
    for (a, x), (b, y) in itertools.combinations(zip(texts, hashes, strict=True), 2):
        assert (a == b) == (x == y)
    assert is_ascii.tolist() == [text.isascii() for text in texts]


@given(st.lists(st.text(max_size=300), min_size=1, max_size=30))
def test_lengths_of_texts_are_those_in_characters(texts):
    found = TextStatistics()
    found.add(*places([text.encode() for text in texts]))
    lengths = sorted(map(len, texts))
    assert (found.lengths.least, found.lengths.most) == (lengths[0], lengths[-1])
    assert float(found.lengths.mean) == pytest.approx(np.mean(lengths))
    assert found.empty == texts.count("")
    assert found.distinct.number == len(set(texts))


def test_what_is_no_text_is_counted_in_bytes():
    found = TextStatistics()
    found.add(*places([b"\xff\xfe\xfd", "häh".encode()]))
    assert found.not_text == 1
    assert found.summary()["lengths"]["max"] == 3


def test_the_most_frequent_values_are_counted_while_they_are_few():
    found = NumberStatistics("int64")
    found.add(np.array([3] * 5 + [1] * 7 + list(range(100, 900))))
    top = found.summary()["top"]
    assert top["is_exact"]
    assert top["values"][:3] == [
        {"value": 1, "count": 7}, {"value": 3, "count": 5}, {"value": 100, "count": 1}
    ]  # fmt: skip
    found.add(np.arange(5000))
    assert found.summary()["top"] == {"is_exact": False, "values": []}


def test_frequent_texts_among_very_many_are_found():
    rng = random.Random(0)
    texts = [b"often"] * 20_000 + [b"seldom"] * 4_000 + [b"%d" % i for i in range(60_000)]
    rng.shuffle(texts)
    found = TextStatistics()
    for begin in range(0, len(texts), 10_000):
        part = TextStatistics()
        part.add(*places(texts[begin : begin + 10_000]))
        found.merge(part)
    told = found.summary()
    assert not told["top"]["is_exact"]
    first, second = told["top"]["values"][:2]
    assert (first["value"], second["value"]) == ("often", "seldom")
    most_wrong = 3.5 / 2**12 * len(texts)
    assert 20_000 - most_wrong <= first["count"] <= 20_000
    assert 4_000 - most_wrong <= second["count"] <= 4_000
    assert told["distinct"]["number"] == pytest.approx(60_002, rel=0.08)


def test_merging_exact_counts_with_a_sketch_loses_nothing():
    few, many = Top(is_of_texts=True), Top(is_of_texts=True)
    few.add(np.zeros(500, np.uint64), lambda _: "a")
    hashes = np.arange(1, 2001, dtype=np.uint64)
    many.add(hashes, lambda place: f"b{place}")
    for one, other in ((few, many), (many, few)):
        both = Top(is_of_texts=True)
        both.merge(one)
        both.merge(other)
        assert not both.is_exact
        assert ("a", 500) in both.most()


def test_odd_numbers_are_counted_apart():
    found = NumberStatistics("float32")
    found.add(np.array([1, np.nan, np.inf, -np.inf, 3], np.float32))
    told = found.summary()
    assert (told["values"], told["nan"], told["infinite"]) == (5, 1, 2)
    assert (told["min"], told["max"], told["mean"]) == (1, 3, 2)


def test_numbers_that_the_type_cannot_hold_are_counted_apart():
    found = NumberStatistics("int8")
    found.add(np.array([1, 300, -129], np.int64))
    assert found.summary()["outside"] == 2
    assert found.summary()["max"] == 1


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.float32, np.float64])
def test_labels_of_any_dtype_are_counted(dtype):
    labels = LabelStatistics(None, np.zeros(3, np.int64))
    labels.add(np.array([[0, 2], [2, 7]], dtype))
    assert labels.counts.tolist() == [1, 0, 2]
    assert (labels.unknown, labels.outside) == (0, 1)


def test_floats_that_are_no_class_are_outside():
    labels = LabelStatistics(None, np.zeros(3, np.int64))
    labels.add(np.array([1.0, -1.0, 1.5, np.nan, np.inf]))
    assert labels.counts.tolist() == [0, 1, 0]
    assert (labels.unknown, labels.outside) == (1, 3)
