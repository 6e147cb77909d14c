"""Distances between the statistics of two versions, against SciPy's and by hand."""

import numpy as np
import pytest
from scipy import stats

from my_datasets.records.tf_example.columns import PADDING
from my_datasets.statistics import drift
from my_datasets.statistics.values import NumberStatistics, TextStatistics


def of(**features):
    """Returns statistics of examples with one value of each feature, or none."""
    examples = max(one["values"] + one["missing"] for one in features.values())
    return {"train": {"examples": examples, "features": features}}


def texts(values):
    found = TextStatistics()
    stored = [value.encode() for value in values]
    data = np.frombuffer(b"".join(stored) + bytes(PADDING), np.uint8)
    stops = np.cumsum([len(one) for one in stored])
    found.add(data, stops - [len(one) for one in stored], stops)
    return {"kind": "text", "missing": 0, **found.summary()}


def numbers(values):
    found = NumberStatistics("float64")
    found.add(np.asarray(values, np.float64))
    return {"kind": "number", "missing": 0, **found.summary()}


def labels(**counts):
    return {"kind": "label", "missing": 0, "values": sum(counts.values()), "classes": counts}


@pytest.mark.parametrize("shift", [0.3, 1, 5])
def test_the_distance_of_numbers_is_that_of_kolmogorov_and_smirnov(shift):
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=20_000), rng.normal(size=20_000) + shift
    (found,) = drift.drifted(of(x=numbers(one)), of(x=numbers(other)))
    assert found.measure == drift.KOLMOGOROV_SMIRNOV
    assert found.distance == pytest.approx(stats.ks_2samp(one, other).statistic, abs=0.02)
    assert found.after == f"median {numbers(other)['percentiles'][50]:g}"


def test_a_number_that_is_no_longer_as_frequent():
    (found,) = drift.drifted(of(x=numbers([0, 1] * 500)), of(x=numbers([0, 0, 0, 0, 1] * 200)))
    assert found.distance == pytest.approx(0.3, abs=0.02)


def test_samples_of_the_same_do_not_drift():
    rng = np.random.default_rng(1)
    for size in (5, 30, 300, 3000):
        for _ in range(20):
            both = (of(x=numbers(rng.normal(size=size))) for _ in range(2))
            assert not drift.drifted(*both)


def test_labels_and_what_is_missing():
    before, after = labels(cat=600, dog=400), labels(cat=300, dog=700)
    (found,) = drift.drifted(of(y=before), of(y=after))
    assert (found.measure, found.distance) == (drift.SHARE, pytest.approx(0.3))
    assert (found.before, found.after) == ("dog: 40.0%", "dog: 70.0%")
    (found,) = drift.drifted(of(y=before), of(y={**before, "missing": 200}))
    assert (found.statistic, found.before, found.after) == ("missing", "0.0%", "16.7%")


def test_of_many_texts_only_what_is_known_of_their_shares_is_reported():
    def words(seed, often=0):
        drawn = np.random.default_rng(seed).integers(0, 400, 4000)
        return ["frequent"] * often + [f"word {number:03}" for number in drawn]

    # Twenty of four hundred are told, and others in either version.
    assert not drift.drifted(of(x=texts(words(0))), of(x=texts(words(1))))
    (found,) = drift.drifted(of(x=texts(words(0))), of(x=texts(words(1, often=1000))))
    least_told = texts(words(0))["top"]["values"][-1]["count"] / 4000
    assert found.distance == pytest.approx(0.2 - least_told, abs=1e-6)
    assert (found.before, found.after) == (f"frequent: at most {least_told:.1%}", "frequent: 20.0%")
    (found,) = drift.drifted(of(x=texts(["a"] * 600 + ["b"] * 400)), of(x=texts(["a"] * 1000)))
    assert (found.before, found.after, found.distance) == ("b: 40.0%", "b: 0.0%", 0.4)


def test_values_of_one_example_are_not_drawn_apart():
    """Ten examples with a thousand values each, about a number of their own: that says little."""

    def drawn(seed):
        rng = np.random.default_rng(seed)
        found = numbers((rng.normal(size=(10, 1)) + rng.normal(size=(10, 1000)) / 10).reshape(-1))
        return {"train": {"examples": 10, "features": {"x": found}}}

    for seed in range(10):
        assert not drift.drifted(drawn(seed), drawn(seed + 100))


def test_missing_is_a_share_of_the_examples():
    lists = {**numbers(range(90_000)), "missing": 0}
    before = {"train": {"examples": 1000, "features": {"x": lists}}}
    after = {"train": {"examples": 1000, "features": {"x": {**lists, "missing": 100}}}}
    (found,) = drift.drifted(before, after)
    assert (found.statistic, found.before, found.after) == ("missing", "0.0%", "10.0%")


def test_what_is_declared_counts_more():
    before, after = labels(cat=60_000, dog=40_000), labels(cat=54_000, dog=46_000)
    assert not drift.drifted(of(y=before), of(y=after))
    assert drift.drifted(of(y=before), of(y=after), {"y": 0.01})[0].threshold == 0.01
    assert not drift.drifted(of(y=before), of(y=labels(cat=0, dog=999)), {"y": 1})


def test_other_splits_features_and_kinds_are_not_compared():
    one = numbers(range(100))
    assert not drift.drifted(of(x=one), {"test": {"examples": 1, "features": {"x": one}}})
    assert not drift.drifted(of(x=one), of(z=one))
    assert not drift.drifted(of(x=one), of(x=labels(a=1)))
    assert not drift.drifted(of(x=numbers([])), of(x=one))
