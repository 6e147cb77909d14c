"""Leases in a store: one holder at a time on all machines, and no dead one for ever."""

import json
import threading
import time

import pytest

from my_datasets import errors
from my_datasets.storage import lease
from tests.waiting import until

PATH = "digits/.1.0.0.lock"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.05)
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.02)


@pytest.fixture
def quickly_given_up(monkeypatch):
    monkeypatch.setattr(lease, "EXPIRY_SECONDS", 1.0)


def check_until_it_fails(held):
    until(lambda: held.check() is not None, "the loss of the lease was never noticed")


def left_behind(store, place="/elsewhere"):
    """As of a process that was killed."""
    said = {"machine": "another", "place": place, "mark": "0", "count": 7}
    store.replace(PATH, json.dumps(said).encode(), None)


def test_it_is_there_while_it_is_held(store):
    with lease.hold(store, PATH, "/here") as held:
        first = store.state(PATH, 4096)
        held.check()
        until(lambda: store.state(PATH, 4096) != first, "it was never renewed")
        assert json.loads(first[0])["place"] == "/here"
    with pytest.raises(errors.NotInStoreError):
        store.state(PATH, 4096)


def test_one_holds_it_at_a_time(store):
    held, most = [], []

    def work(number):
        for _ in range(3):
            with lease.hold(store, PATH, f"/{number}") as mine:
                held.append(number)
                most.append(len(held))
                time.sleep(0.1)
                mine.check()
                held.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 9


def test_that_of_a_process_that_died_is_taken_after_a_while(store, quickly_given_up):
    left_behind(store)
    begin = time.monotonic()
    with lease.hold(store, PATH, "/here"):
        assert time.monotonic() - begin >= lease.EXPIRY_SECONDS


def test_that_of_a_process_of_here_is_taken_at_once(store, monkeypatch):
    """Whoever asks holds what only one process of this machine holds: the other one is dead."""
    monkeypatch.setattr(lease, "EXPIRY_SECONDS", 1e9)
    monkeypatch.setattr(lease.platform, "node", lambda: "another")
    left_behind(store, "/here")
    with lease.hold(store, PATH, "/here") as held:
        held.check()


def test_one_that_was_taken_away_is_noticed(store):
    with lease.hold(store, PATH, "/here") as held:
        while True:  # it may be renewed in between
            try:
                store.replace(PATH, b'{"mark": "of another"}', store.state(PATH, 4096)[1])
                break
            except errors.ChangedInStoreError:
                continue
        with pytest.raises(errors.BuildInterruptedError, match="may have taken over"):
            check_until_it_fails(held)
    assert store.state(PATH, 4096)[0] == b'{"mark": "of another"}'


def test_one_that_cannot_be_renewed_is_lost(store, monkeypatch, quickly_given_up):
    with lease.hold(store, PATH, "/here") as held:

        def silent(*_):
            raise errors.StoreUnavailableError("nobody answers")

        monkeypatch.setattr(store, "replace", silent)
        with pytest.raises(errors.BuildInterruptedError):
            check_until_it_fails(held)


@pytest.mark.parametrize("data", [b"\xff nothing of ours", b"[1]", b"{}"])
def test_what_is_no_lease_is_waited_for_and_taken(store, quickly_given_up, data):
    store.replace(PATH, data, None)
    with lease.hold(store, PATH, "/here"):
        assert b"/here" in store.state(PATH, 4096)[0]


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="needs Linux's clock")
def test_who_has_slept_does_not_believe_in_its_own(store, monkeypatch):
    """`time.monotonic` does not count how long a machine was suspended."""
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 3600)
    with lease.hold(store, PATH, "/here") as held:
        held.check()
        original = time.clock_gettime
        monkeypatch.setattr(time, "clock_gettime", lambda one: original(one) + lease.EXPIRY_SECONDS)
        with pytest.raises(errors.BuildInterruptedError):
            held.check()


def test_it_is_given_back_when_the_last_answer_was_lost(store, monkeypatch):
    with lease.hold(store, PATH, "/here"):
        replace, written = store.replace, []

        def deaf(*args):
            written.append(replace(*args))
            raise errors.StoreUnavailableError("the answer was lost")

        monkeypatch.setattr(lease, "RENEWAL_SECONDS", 3600)
        monkeypatch.setattr(store, "replace", deaf)
        until(lambda: written, "it was never renewed")
    with pytest.raises(errors.NotInStoreError):
        store.state(PATH, 4096)


def test_what_another_took_in_the_meantime_is_not_removed(store, monkeypatch):
    """Though this one does not know of it: it has not asked since."""
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 3600)
    with lease.hold(store, PATH, "/here"):
        store.replace(PATH, b'{"mark": "of another"}', store.state(PATH, 4096)[1])
    assert store.state(PATH, 4096)[0] == b'{"mark": "of another"}'


def test_answers_that_were_lost_lose_no_lease(store, monkeypatch):
    """It was renewed, is not told so, and then cannot even ask."""
    replace, state = store.replace, store.state
    lost, silent = [1], [1, 1]

    def deaf(*args):
        tag = replace(*args)
        if lost:
            lost.pop()
            raise errors.StoreUnavailableError("the answer was lost")
        return tag

    def mute(*args):
        if silent:
            silent.pop()
            raise errors.StoreUnavailableError("nobody answers")
        return state(*args)

    with lease.hold(store, PATH, "/here") as held:
        monkeypatch.setattr(store, "replace", deaf)
        monkeypatch.setattr(store, "state", mute)
        until(lambda: not silent, "it never asked")
        count = json.loads(state(PATH, 4096)[0])["count"]
        until(
            lambda: json.loads(state(PATH, 4096)[0])["count"] != count,
            "it was not renewed any more",
        )
        held.check()
    with pytest.raises(errors.NotInStoreError):
        state(PATH, 4096)
