"""Waiting for something to become true, on a machine of any speed."""

import time
from collections.abc import Callable

# Only a hang takes this long, also on one loaded core; it ends well before pytest's own limit.
LONGEST_SECONDS = 300.0


def until(condition: Callable[[], object], what: str = "it did not come true") -> None:
    """Returns as soon as a condition holds.

    Raises:
      AssertionError: It did not within `LONGEST_SECONDS`; with `what` as its message.
    """
    end = time.monotonic() + LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)
