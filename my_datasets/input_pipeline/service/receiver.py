"""Receives pieces from a service in a thread, and waits for them with a deadline.

TensorFlow's own wait for a piece may block forever, so it happens in the thread.
"""

import contextlib
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
from my_datasets.input_pipeline.service.work_graph import WorkGraph

_log = get_logger(__name__)
# Seconds between the thread's checks whether the stream was closed, while its piece waits.
_POLL = 0.2
# Characters shown of a worker's error, which contains a whole traceback.
_SHOWN = 2000


class ReceivedPiece(NamedTuple):
    """A piece made by a worker.

    Attributes:
      worker: The worker's address.
      skipped: The number of examples skipped so far on that worker.
      arrays: The piece's flat tensors as read-only NumPy arrays.
    """

    number: int
    worker: str
    skipped: int
    arrays: tuple[Array, ...]


class PieceStream:
    """The pieces from one job of a service.

    TensorFlow's client waits indefinitely for unreachable workers and dispatchers, and cannot be
    interrupted; so it waits in a thread of its own, which can be abandoned at any time.

    Attributes:
      has_given: Whether `take` has returned a piece.
    """

    def __init__(self, elements: Callable[[], Iterable[Any]], notify: threading.Event) -> None:
        """Starts the thread, which sets `notify` when a piece arrives or the stream ends.

        `elements` returns flat tuples of arrays; it may block for a long time.
        """
        self._elements = elements
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
            for number, worker, skipped, *arrays in self._elements():
                arrived = ReceivedPiece(
                    int(number), bytes(worker).decode(), int(skipped), tuple(arrays)
                )
                while not self._is_closed.is_set():
                    with contextlib.suppress(queue.Full):
                        self._slot.put(arrived, timeout=_POLL)
                        break
                else:
                    return
                self._notify.set()
        except BaseException as error:
            # The traceback references TensorFlow's iterator, whose destructor may block forever:
            # let that happen in this thread, not in the one that drops the stream.
            error.__context__ = None
            self._error = error.with_traceback(None)
        finally:
            self._notify.set()


@dataclass(frozen=True)
class Service:
    """The dispatcher of a tf.data service, and the longest wait for anything new in seconds."""

    address: ServiceAddress
    deadline: float

    @property
    def options(self) -> dict[str, object]:
        """The options of TensorFlow's `distribute` for this service."""
        # Compression takes longer than sending data within one machine.
        is_here = self.address.is_loopback or self.address.host == socket.gethostname()
        return {"compression": None if is_here else "AUTO"}


class Receiver(ABC):
    """Receives the pieces of a plan for one iterator."""

    def __init__(
        self, work: WorkGraph, policy: Policy, service: Service, audit: DeliveryAudit, start: State
    ) -> None:
        """Requests nothing yet; the iteration begins at `start`."""
        self.work = work
        self.policy = policy
        self.service = service
        self.audit = audit
        self.batching = work.engine.batching.at(start)
        self._notify = threading.Event()
        self._streams: list[PieceStream] = []
        self._workers: set[str] = set()
        self._last_progress = time.monotonic()
        self._epochs = self._all_epochs()
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
            self.progress()
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
        return self._stream(
            lambda: self.work.dataset(
                self.batching.start, numbers, self.policy, self.service.address.url,
                **self.service.options, **options,
            ).as_numpy_iterator()
        )  # fmt: skip

    def begin_local(self, numbers: Sequence[int]) -> PieceStream:
        """Returns a stream of pieces that this process makes itself."""
        return self._stream(lambda: self.work.local_pieces(self.batching.start, numbers))

    def _stream(self, elements: Callable[[], Iterable[Any]]) -> PieceStream:
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
                self._workers.add(arrived.worker)
                self.audit.add_piece(arrived.worker, arrived.skipped)
                return arrived
        if not any(stream.has_ended for stream in streams):
            self._notify.wait(_POLL)
        return None

    def progress(self) -> None:
        """Records that something new arrived."""
        self._last_progress = time.monotonic()

    @property
    def idle(self) -> float:
        """Seconds spent waiting since something new last arrived."""
        return time.monotonic() - self._last_progress

    def check_deadline(self) -> None:
        """Raises ServiceError if nothing new arrived within the deadline."""
        if self.idle > self.service.deadline:
            raise self.timeout_error()

    def timeout_error(self) -> ServiceError:
        """Returns the error for an exceeded deadline; it lists which servers answer."""
        answers = {True: "answers", False: "does not answer"}
        workers = self.workers_that_answer()
        seen = ", ".join(f"{name} {answers[one]}" for name, one in sorted(workers.items()))
        return ServiceError(
            f"Nothing new came from the service at {self.service.address.url} for "
            f"{self.service.deadline:g} s.",
            f"The dispatcher {answers[self.service.address.answers()]}; workers: "
            f"{seen or 'none has sent anything yet'}",
            fix="start what does not answer (my-datasets serve worker --supervise restarts it "
            "by itself), or give a longer deadline; then resume from the last state",
        )

    def workers_that_answer(self) -> dict[str, bool]:
        """Returns whether each worker that sent a piece can be reached."""
        return {
            name: ServiceAddress.parse(f"grpc://{name}").answers()
            for name in self._workers - {work_graph.LOCAL}
        }

    def others_answer(self) -> bool:
        """Returns whether the dispatcher, and any worker that sent a piece, can be reached."""
        return self.service.address.answers() and any(self.workers_that_answer().values())

    def finish(self, epoch: Epoch) -> None:
        """Records an epoch that has ended; LostExamplesError if it violates the guarantee."""
        account = epoch.close(self.policy)
        self.audit.add_epoch(account)
        if account.lost:
            _log.warning(
                "epoch %d: %d of %d examples were lost with a worker",
                account.epoch, len(account.lost), account.expected,
            )  # fmt: skip

    def _all_epochs(self) -> Iterator[Epoch]:
        batching, first = self.batching, 0
        number = batching.start.epoch
        while batching.end is None or number < batching.end:
            count = batching.pieces(number)
            yield Epoch(number, range(first, first + count), batching)
            first, number = first + count, number + 1

    def _failed(self, error: tf.errors.OpError) -> ServiceError:
        text = str(error.message)
        if work_graph.is_unregistered(text):
            return ServiceError(
                f"A worker of {self.service.address.url} does not know this kind of work.",
                "Expected workers started by my-datasets serve worker, of the same version",
                fix="start such workers",
            )
        return ServiceError(
            f"A worker of {self.service.address.url} cannot make a batch.",
            text[:_SHOWN],
            fix="read the worker's log; data must be at the same path, or in an object store",
        )
