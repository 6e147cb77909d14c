"""Pieces as they come from a service, taken by a thread that may wait without an end."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

# How often a thread that has something looks whether somebody still wants it, in seconds.
_LOOK = 0.2


class Arrived(NamedTuple):
    """A piece that a worker made.

    Attributes:
      number: Which piece.
      maker: The worker's address.
      skipped: How many examples were skipped there so far.
      arrays: Its flat tensors as NumPy arrays, which are not to be written to.
    """

    number: int
    maker: str
    skipped: int
    arrays: tuple[Any, ...]


class PieceStream:
    """What comes of one job of a service.

    TensorFlow's client waits for workers and dispatchers that are gone as long as it takes, and
    cannot be interrupted: so it waits in a thread of its own, of which one takes leave at any time.

    Attributes:
      has_given: Whether anything was taken of it.
    """

    def __init__(self, begin: Callable[[], Iterable[Any]], notify: threading.Event) -> None:
        """Begins to take.

        Args:
          begin: Returns the elements, flat tuples of arrays; it may wait for long, too.
          notify: Is set when something came.
        """
        self._begin = begin
        self._notify = notify
        # One piece waits here, more of them in TensorFlow's client.
        self._slot: queue.Queue[Arrived] = queue.Queue(1)
        self._is_closed = threading.Event()
        self.has_given = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="my_datasets-service", daemon=True)
        self._thread.start()

    def take(self) -> Arrived | None:
        """Returns the next piece if it is there; None if it is not.

        Raises:
          tf.errors.OpError: The service answered with an error.
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
        """Whether nothing more will come."""
        return not self._thread.is_alive() and self._slot.empty()

    def close(self) -> None:
        """Takes no more; does not wait for the thread, which may have to wait itself."""
        self._is_closed.set()

    def _run(self) -> None:
        try:
            for arrived in self._arriving():
                if not self._put(arrived):
                    return
        except BaseException as error:
            # Its traceback holds TensorFlow's iterator, whose end may be waited for without an end:
            # by this thread, not by whoever lets go of the stream.
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
