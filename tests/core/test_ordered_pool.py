"""Work on several things at the same time: in order, a bounded number ahead, errors told."""

import itertools
import threading

import pytest

from my_datasets.core import processes

THREADS = 3


def test_results_come_in_the_order_of_the_things():
    late = threading.Event()

    def work(number):
        if number == 0:
            assert late.wait(60)  # the first is the last to be done
        if number == 5:
            late.set()
        return number * number

    assert list(processes.ordered_results(work, range(50), THREADS)) == [n * n for n in range(50)]
    assert list(processes.ordered_results(work, (), THREADS)) == []


def test_no_more_is_begun_than_is_soon_taken():
    begun = itertools.count()
    things = processes.ordered_results(lambda one: one, begun, THREADS)
    assert [next(things) for _ in range(10)] == list(range(10))
    things.close()
    assert next(begun) <= 10 + 4 * THREADS


def test_the_first_failure_is_reported_and_nothing_begins_after_it():
    seen = []

    def work(number):
        seen.append(number)
        if number in (2, 3):
            raise ValueError(number)
        return number

    found = processes.ordered_results(work, range(10_000), THREADS)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(ValueError, match="2"):
        next(found)
    assert max(seen) < 2 + 5 * THREADS
