"""Distances between the statistics of two versions, against SciPy's and by hand."""

import numpy as np
import pytest
from scipy import stats

from my_datasets.statistics import drift
from my_datasets.statistics.numbers import Numbers


def of(**features):
    return {"train": {"examples": 1, "features": features}}


def numbers(values):
    found = Numbers("float64")
    found.add(np.asarray(values, np.float64))
    return {"kind": "number", "missing": 0, **found.summary()}


def labels(**counts):
    return {"kind": "label", "missing": 0, "values": sum(counts.values()), "classes": counts}


@pytest.mark.parametrize("shift", [0.3, 1, 5])
def test_the_distance_of_numbers_is_that_of_kolmogorov_and_smirnov(shift):
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=20_000), rng.normal(size=20_000) + shift
    (found,) = drift.moved(of(x=numbers(one)), of(x=numbers(other)))
    assert found.measure == drift.KOLMOGOROV_SMIRNOV
    assert found.distance == pytest.approx(stats.ks_2samp(one, other).statistic, abs=0.02)
    assert found.after == f"median {numbers(other)['percentiles'][50]:g}"


def test_a_number_that_is_no_longer_as_frequent():
    (found,) = drift.moved(of(x=numbers([0, 1] * 500)), of(x=numbers([0, 0, 0, 0, 1] * 200)))
    assert found.distance == pytest.approx(0.3, abs=0.02)


def test_samples_of_the_same_do_not_drift():
    rng = np.random.default_rng(1)
    for size in (5, 30, 300, 3000):
        for _ in range(20):
            both = (of(x=numbers(rng.normal(size=size))) for _ in range(2))
            assert not drift.moved(*both)


def test_labels_and_what_is_missing():
    before, after = labels(cat=600, dog=400), labels(cat=300, dog=700)
    (found,) = drift.moved(of(y=before), of(y=after))
    assert (found.measure, found.distance) == (drift.SHARE, pytest.approx(0.3))
    assert (found.before, found.after) == ("dog: 40.0%", "dog: 70.0%")
    (found,) = drift.moved(of(y=before), of(y={**before, "missing": 200}))
    assert (found.statistic, found.before, found.after) == ("missing", "0.0%", "16.7%")


def test_what_is_declared_counts_more():
    before, after = labels(cat=60_000, dog=40_000), labels(cat=54_000, dog=46_000)
    assert not drift.moved(of(y=before), of(y=after))
    assert drift.moved(of(y=before), of(y=after), {"y": 0.01})[0].threshold == 0.01
    assert not drift.moved(of(y=before), of(y=labels(cat=0, dog=999)), {"y": 1})


def test_other_splits_features_and_kinds_are_not_compared():
    one = numbers(range(100))
    assert not drift.moved(of(x=one), {"test": {"examples": 1, "features": {"x": one}}})
    assert not drift.moved(of(x=one), of(z=one))
    assert not drift.moved(of(x=one), of(x=labels(a=1)))
    assert not drift.moved(of(x=numbers([])), of(x=one))
