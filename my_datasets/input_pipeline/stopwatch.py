"""How long each stage of a pipeline takes, where somebody wants to know."""

import contextvars
import time
from collections import defaultdict
from types import TracebackType

_current: contextvars.ContextVar["Stopwatch | None"] = contextvars.ContextVar(
    "my_datasets_stopwatch", default=None
)


class Stopwatch:
    """Adds up the seconds that stages take in one thread, each without those within it.

    Attributes:
      seconds: Of each stage.
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        self.seconds: dict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = 0.0

    def __enter__(self) -> "Stopwatch":
        self._token = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _current.reset(self._token)

    def begin(self, stage: str) -> None:
        """A stage begins, within the one that runs."""
        self._switch()
        self._running.append(stage)

    def end(self) -> None:
        """The stage that began last ends."""
        self._switch()
        self._running.pop()

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now


class timed:  # noqa: N801 - reads as the statement it is: `with timed("read"):`
    """Takes the time of a stage, if it is wanted; else it costs a tenth of a microsecond."""

    def __init__(self, stage: str) -> None:
        """Takes the stage's name."""
        self._stage = stage

    def __enter__(self) -> None:
        self._watch = _current.get()
        if self._watch is not None:
            self._watch.begin(self._stage)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watch is not None:
            self._watch.end()
