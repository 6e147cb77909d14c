"""Receives pieces from a service in a thread, because waiting for them may block forever."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

# Seconds between the thread's checks whether the stream was closed, while its piece waits.
_LOOK = 0.2


class Arrived(NamedTuple):
    """A piece made by a worker.

    Attributes:
      number: The piece's number.
      maker: The worker's address.
      skipped: The number of examples skipped so far on that worker.
      arrays: The piece's flat tensors as read-only NumPy arrays.
    """

    number: int
    maker: str
    skipped: int
    arrays: tuple[Any, ...]


class PieceStream:
    """The pieces from one job of a service.

    TensorFlow's client waits indefinitely for unreachable workers and dispatchers, and cannot be
    interrupted; so it waits in a thread of its own, which can be abandoned at any time.

    Attributes:
      has_given: Whether `take` has returned a piece.
    """

    def __init__(self, begin: Callable[[], Iterable[Any]], notify: threading.Event) -> None:
        """Starts the thread.

        Args:
          begin: Returns the elements, flat tuples of arrays; it may block for a long time.
          notify: Set when a piece arrives or the stream ends.
        """
        self._begin = begin
        self._notify = notify
        # One piece waits here; TensorFlow's client buffers more.
        self._slot: queue.Queue[Arrived] = queue.Queue(1)
        self._is_closed = threading.Event()
        self.has_given = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="my_datasets-service", daemon=True)
        self._thread.start()

    def take(self) -> Arrived | None:
        """Returns the next piece if it has arrived; otherwise None.

        Raises:
          tf.errors.OpError: The service returned an error.
        """
        try:
            arrived = self._slot.get_nowait()
            self.has_given = True
            return arrived
        except queue.Empty:
            if self._error is not None:
                raise self._error from None
            return None

    @property
    def has_ended(self) -> bool:
        """Whether no more pieces will arrive."""
        return not self._thread.is_alive() and self._slot.empty()

    def close(self) -> None:
        """Stops receiving; does not wait for the thread, which may be blocked."""
        self._is_closed.set()

    def _run(self) -> None:
        try:
            for arrived in self._arriving():
                if not self._put(arrived):
                    return
        except BaseException as error:
            # The traceback references TensorFlow's iterator, whose destructor may block forever:
            # let that happen in this thread, not in the one that drops the stream.
            error.__context__ = None
            self._error = error.with_traceback(None)
        finally:
            self._notify.set()

    def _arriving(self) -> Iterator[Arrived]:
        for number, maker, skipped, *arrays in self._begin():
            yield Arrived(int(number), bytes(maker).decode(), int(skipped), tuple(arrays))

    def _put(self, arrived: Arrived) -> bool:
        while not self._is_closed.is_set():
            try:
                self._slot.put(arrived, timeout=_LOOK)
            except queue.Full:
                continue
            self._notify.set()
            return True
        return False
