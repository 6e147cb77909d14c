"""Values that each process makes for itself."""

import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from my_datasets.core.processes import PerProcess, cached_per_process

made = []
kept = PerProcess()
dropped = PerProcess(keeps_inherited=False)


@cached_per_process(maxsize=2)
def of(name):
    made.append(name)
    return name, os.getpid()


def in_child(results):
    found = [kept.get(os.getpid), dropped.get(os.getpid), of("a")[1]]
    results.put((os.getpid(), found, len(kept._values), len(dropped._values)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_makes_its_own():
    here = os.getpid()
    assert kept.get(os.getpid) == kept.get(lambda: 0) == dropped.get(os.getpid) == here
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=in_child, args=(results,))
    child.start()
    there, found, kept_there, dropped_there = results.get()
    child.join()
    assert there != here
    assert found == [there] * 3
    assert (kept_there, dropped_there) == (2, 1)
    assert kept.get(lambda: 0) == here
    assert pickle.loads(pickle.dumps(kept)).get(lambda: "new") == "new"


def test_results_are_kept_until_they_are_too_many():
    of.cache_clear()
    made.clear()
    for name in ("a", "a", "b", "c", "a"):
        of(name)
    assert made == ["a", "b", "c", "a"]


def test_threads_that_come_together_after_a_fork_get_the_same():
    began = threading.Barrier(2)

    class Inherited(dict):
        def __contains__(self, process):
            began.wait()
            return super().__contains__(process)

    value = PerProcess(keeps_inherited=False)
    value._values = Inherited({os.getpid() + 1: "the parent's"})
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: value.get(list), range(2))
    assert first is second
    assert len(value._values) == 1
