"""How far a pipeline is: looked at again and again, whatever a store answers."""

import threading

import pytest

from my_datasets import errors
from my_datasets.building.engines.beam import stage
from my_datasets.building.progress import Meter


@pytest.mark.parametrize("error", [errors.StoreUnavailableError("no answer"), OSError("stale")])
def test_a_look_that_fails_is_not_the_last_one(monkeypatch, caplog, error):
    monkeypatch.setattr(stage, "_EVERY", 0.01)
    failing, again = [error], threading.Event()

    def look():
        if failing:
            raise failing.pop()
        again.set()

    with stage.watch_progress(look, Meter(lambda _: None)):
        assert again.wait(60)
    assert str(error) in caplog.text
