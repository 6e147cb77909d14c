"""The bound on chance, against the binomial distribution itself."""

import math
from fractions import Fraction

import pytest

from my_datasets.verification import split_checks


def tail(total, share, counts):
    """Returns the exact chance of some counts."""
    p = Fraction(share)
    return sum(math.comb(total, k) * p**k * (1 - p) ** (total - k) for k in counts)


@pytest.mark.parametrize("total", [1, 2, 7, 40])
@pytest.mark.parametrize("share", [0.5, 0.1, 0.8, 0.999])
def test_no_tail_is_greater_than_its_bound(total, share):
    for count in range(total + 1):
        is_above = count >= total * share
        side = range(count, total + 1) if is_above else range(count + 1)
        exact = tail(total, share, side)  # maybe less than a float can be, and greater than 0
        logarithm = math.log(exact.numerator) - math.log(exact.denominator)
        assert logarithm <= split_checks.log_bound(count, total, share) + 1e-6


@pytest.mark.parametrize(("total", "share"), [(0, 0.5), (3, 0.5), (50, 0.2), (90, 0.9), (9, 1.0)])
@pytest.mark.parametrize("level", [1e-9, 1e-3])
def test_counts_beyond_what_is_allowed_are_rarer_than_the_level(total, share, level):
    low, high = split_checks.allowed(total, share, level)
    assert 0 <= low <= total * share <= high <= total
    outside = [*range(low), *range(high + 1, total + 1)]
    assert tail(total, share, outside) < level


def test_what_is_allowed_is_not_everything():
    assert split_checks.allowed(10_000, 0.2) == pytest.approx((1740, 2270), abs=30)
    assert split_checks.allowed(5, 1.0) == (5, 5)
    assert split_checks.log_bound(1, 5, 0.0) == -math.inf


@pytest.mark.parametrize(("total", "share"), [(10_000, 0.2), (1_000_000, 0.5), (300, 0.9)])
def test_of_a_thousand_million_good_versions_one_is_reported(total, share):
    low, high = split_checks.allowed(total, share)
    least = math.log(1e-9 / 2)  # on each side
    for inside, outside in ((low, low - 1), (high, high + 1)):
        assert split_checks.log_bound(inside, total, share) >= least
        if 0 <= outside <= total:
            assert split_checks.log_bound(outside, total, share) < least
