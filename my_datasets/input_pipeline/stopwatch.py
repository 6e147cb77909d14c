"""Measures how long each stage of a pipeline takes."""

import contextvars
import time
from collections import defaultdict

_current: contextvars.ContextVar["Stopwatch | None"] = contextvars.ContextVar(
    "my_datasets_stopwatch", default=None
)


class Stopwatch:
    """Adds up the `seconds` that each stage takes in one thread, excluding nested stages."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = 0.0

    def __enter__(self) -> "Stopwatch":
        self._token = _current.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.reset(self._token)

    def switch(self, stage: str | None) -> None:
        """Begins a stage, nested in the running one; None ends the innermost running stage."""
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now
        if stage is None:
            self._running.pop()
        else:
            self._running.append(stage)


class timed:  # noqa: N801 - reads as the statement it is: `with timed("read"):`
    """Measures a stage, if a `Stopwatch` is active; otherwise costs a tenth of a microsecond."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __enter__(self) -> None:
        self._watch = _current.get()
        if self._watch is not None:
            self._watch.switch(self._stage)

    def __exit__(self, *error: object) -> None:
        if self._watch is not None:
            self._watch.switch(None)
