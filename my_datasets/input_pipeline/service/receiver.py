"""Receives pieces from a service in a thread, and waits for them with a deadline.

TensorFlow's own wait for a piece may block forever, so it happens in the thread.
"""

import queue
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from my_datasets.core.arrays import Array
from my_datasets.core.logs import get_logger
from my_datasets.errors import ServiceError
from my_datasets.input_pipeline.frameworks.tensors import calls
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.service import work_graph
from my_datasets.input_pipeline.service.delivery_audit import DeliveryAudit, Epoch, Policy
from my_datasets.input_pipeline.service.server import ServiceAddress
from my_datasets.input_pipeline.service.work_graph import HERE, WorkGraph

# Seconds between the thread's checks whether the stream was closed, while its piece waits.
_LOOK = 0.2

_log = get_logger(__name__)
_CONNECT = 2.0
# Characters shown of a worker's error, which contains a whole traceback.
_LONGEST = 2000


class ReceivedPiece(NamedTuple):
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
    arrays: tuple[Array, ...]


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
        self._slot: queue.Queue[ReceivedPiece] = queue.Queue(1)
        self._is_closed = threading.Event()
        self.has_given = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="my_datasets-service", daemon=True)
        self._thread.start()

    def take(self) -> ReceivedPiece | None:
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

    def _arriving(self) -> Iterator[ReceivedPiece]:
        for number, maker, skipped, *arrays in self._begin():
            yield ReceivedPiece(int(number), bytes(maker).decode(), int(skipped), tuple(arrays))

    def _put(self, arrived: ReceivedPiece) -> bool:
        while not self._is_closed.is_set():
            try:
                self._slot.put(arrived, timeout=_LOOK)
            except queue.Full:
                continue
            self._notify.set()
            return True
        return False


@dataclass(frozen=True)
class Service:
    """The dispatcher of a tf.data service, and the longest wait for anything new in seconds."""

    address: ServiceAddress
    deadline: float

    @property
    def options(self) -> dict[str, object]:
        """The options of TensorFlow's `distribute` for this service."""
        # Compression takes longer than sending data within one machine.
        return {"compression": None if self.address.is_here else "AUTO"}


class Receiver(ABC):
    """Receives the pieces of a plan for one iterator."""

    def __init__(
        self, work: WorkGraph, policy: Policy, service: Service, ledger: DeliveryAudit, start: State
    ) -> None:
        """Initializes the receiver; requests nothing yet.

        Args:
          work: Makes the graphs that are sent to the service.
          policy: The guarantees to check.
          service: The service that makes the pieces.
          ledger: Records what arrives.
          start: Where the iteration begins.
        """
        self.work = work
        self.policy = policy
        self.service = service
        self.ledger = ledger
        self.batching = work.engine.batching.at(start)
        self._notify = threading.Event()
        self._streams: list[PieceStream] = []
        self._makers: set[str] = set()
        self._progress = time.monotonic()
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Initializes the attributes of a subclass."""

    def __iter__(self) -> Iterator[tuple[Array, ...]]:
        return self

    def __next__(self) -> tuple[Array, ...]:
        """Returns the flat arrays of the next piece.

        Raises:
          ServiceError: Nothing arrived in time, or a worker cannot make the requested piece.
          LostExamplesError: What arrived violates the policy's guarantee.
        """
        with calls:
            # The time the consumer spent between pieces does not count.
            self._progress = time.monotonic()
            return self.next().arrays

    @abstractmethod
    def next(self) -> ReceivedPiece:
        """Returns the next piece; raises StopIteration after the last one."""

    def close(self) -> None:
        """Stops receiving."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    def begin(self, numbers: Sequence[int], **options: object) -> PieceStream:
        """Begins a new job; returns its stream."""

        def elements() -> Any:
            made = self.work.dataset(
                self.batching.start, numbers, self.policy.dealing, self.service.address.url,
                **self.service.options, **options,
            )  # fmt: skip
            return made.as_numpy_iterator()

        return self._stream_of(elements)

    def begin_here(self, numbers: Sequence[int]) -> PieceStream:
        """Returns a stream of pieces that this process makes itself."""
        return self._stream_of(lambda: self.work.made_here(self.batching.start, numbers))

    def _stream_of(self, elements: Callable[[], Iterable[Any]]) -> PieceStream:
        stream = PieceStream(elements, self._notify)
        self._streams.append(stream)
        return stream

    def end(self, stream: PieceStream) -> None:
        """Stops receiving from a job."""
        stream.close()
        self._streams.remove(stream)

    def poll(self, streams: Sequence[PieceStream]) -> ReceivedPiece | None:
        """Returns a piece that arrived from one of the jobs; None if none arrives shortly.

        Raises:
          StopIteration: Python is shutting down.
          ServiceError: A worker cannot make the requested piece.
        """
        if calls.is_closed:
            raise StopIteration
        self._notify.clear()
        for stream in streams:
            try:
                arrived = stream.take()
            except tf.errors.OpError as error:
                raise self._failed(error) from None
            if arrived is not None:
                self._makers.add(arrived.maker)
                self.ledger.arrived(arrived.maker, arrived.skipped)
                return arrived
        if not any(stream.has_ended for stream in streams):
            self._notify.wait(_LOOK)
        return None

    def progress(self) -> None:
        """Records that something new arrived."""
        self._progress = time.monotonic()

    @property
    def quiet(self) -> float:
        """Seconds spent waiting since something new last arrived."""
        return time.monotonic() - self._progress

    def check_deadline(self) -> None:
        """Raises ServiceError if nothing new arrived within the deadline."""
        if self.quiet > self.service.deadline:
            raise self.overdue()

    def overdue(self) -> ServiceError:
        """Returns the error for an exceeded deadline; it lists which servers answer."""
        dispatcher, workers = self.who_answers()
        answers = {True: "answers", False: "does not answer"}
        seen = ", ".join(f"{name} {answers[address]}" for name, address in sorted(workers.items()))
        return ServiceError(
            f"Nothing new came from the service at {self.service.address.url} for "
            f"{self.service.deadline:g} s.",
            f"The dispatcher {answers[dispatcher]}; workers: "
            f"{seen or 'none has sent anything yet'}",
            fix="start what does not answer (my-datasets serve worker --supervise restarts it "
            "by itself), or give a longer deadline; then resume from the last state",
        )

    def who_answers(self) -> tuple[bool, dict[str, bool]]:
        """Returns whether the dispatcher and each worker that sent a piece can be reached."""
        makers = self._makers - {HERE}
        workers = {name: _answers(ServiceAddress.parse(f"grpc://{name}")) for name in makers}
        return _answers(self.service.address), workers

    def account(self, epoch: Epoch) -> None:
        """Records an epoch that has ended.

        Raises:
          LostExamplesError: It violates the policy's guarantee.
        """
        closed = epoch.closed(self.policy)
        self.ledger.add(closed)
        if closed.lost:
            _log.warning(
                "epoch %d: %d of %d examples were lost with a worker",
                closed.epoch, len(closed.lost), closed.expected,
            )  # fmt: skip

    def epochs(self) -> Iterator[Epoch]:
        """Yields an account for each epoch, beginning where the iteration does."""
        batching, first = self.batching, 0
        number = batching.start.epoch
        while batching.end is None or number < batching.end:
            count = batching.pieces(number)
            yield Epoch(number, range(first, first + count), batching)
            first, number = first + count, number + 1

    def _failed(self, error: tf.errors.OpError) -> ServiceError:
        text = str(error.message)
        if work_graph.is_unknown_there(text):
            return ServiceError(
                f"A worker of {self.service.address.url} does not know this kind of work.",
                "Expected workers started by my-datasets serve worker, of the same version",
                fix="start such workers",
            )
        return ServiceError(
            f"A worker of {self.service.address.url} cannot make a batch.",
            text[:_LONGEST],
            fix="read the worker's log; data must be at the same path, or in an object store",
        )


def _answers(address: ServiceAddress) -> bool:
    try:
        with socket.create_connection((address.host, address.port), _CONNECT):
            return True
    except OSError:
        return False
