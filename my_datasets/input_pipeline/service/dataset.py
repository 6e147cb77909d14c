"""A plan as a `tf.data.Dataset` whose batches are made by other processes.

The exact and the static receiver deliver each example exactly once, in the plan's order: from any
number of workers, or from workers with fixed shares. The unordered one delivers pieces as they
arrive, and reports after each epoch which were lost or repeated.
"""

import math
import time
import uuid
import weakref
from collections.abc import Callable

import tensorflow as tf

from my_datasets.core.arrays import Array
from my_datasets.core.logs import get_logger
from my_datasets.errors import PlanError
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.frameworks.tf_dataset import Iteration, Pipeline, counted, timed_by
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Prefetch, Repeat
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.service.delivery_audit import (
    POLICIES,
    DeliveryAudit,
    Epoch,
    ServiceStats,
    Sharding,
)
from my_datasets.input_pipeline.service.receiver import (
    PieceStream,
    ReceivedPiece,
    Receiver,
    Service,
)
from my_datasets.input_pipeline.service.server import ServiceAddress
from my_datasets.input_pipeline.service.work_graph import WorkGraph
from my_datasets.input_pipeline.transform.augment import Augmentation

_log = get_logger(__name__)
# Pieces that may arrive ahead of a late one.
WINDOW = 32
# More pieces than any iteration has; the end of a range that TensorFlow treats as infinite.
_ENDLESS, _INFINITE = 1 << 62, (1 << 63) - 1
# Seconds without a new piece after which the next ones are requested again.
_PATIENCE = 10.0
# Seconds between successive jobs without a result, doubled each time.
_PAUSE, _LONGEST_PAUSE = 0.5, 5.0


class OrderedReceiver(Receiver):
    """Delivers pieces in order; pieces that arrive early wait.

    Attributes:
      total: The number of pieces; a practically infinite number for a plan without an end.
    """

    def prepare(self) -> None:
        """Begins with the first piece."""
        total = self.batching.total_pieces
        self.total = _ENDLESS if total is None else total
        self.following = 0
        self.early: dict[int, ReceivedPiece] = {}
        self._epoch: Epoch | None = None

    def receive(self, epoch: Epoch) -> None:
        """Receives a piece, if one arrives, and adds it to `early` if it is needed."""
        raise NotImplementedError

    def next(self) -> ReceivedPiece:
        """Returns the next piece in the plan's order."""
        if self.following >= self.total:
            self.close()
            raise StopIteration
        if self._epoch is None:
            self._epoch = next(self._epochs)
        while self.following not in self.early:
            self.receive(self._epoch)
        arrived = self.early.pop(self.following)
        self._epoch.give(self.following)
        self.following += 1
        if self.following == self._epoch.pieces.stop:
            self.finish(self._epoch)
            self._epoch = None
        return arrived


class ExactReceiver(OrderedReceiver):
    """Reorders pieces, requests late ones again, and drops duplicates.

    The dispatcher hands out pieces in order to idle workers, so they arrive roughly in order.
    TensorFlow never makes the pieces that a worker had when it died; but a piece's contents depend
    on its number alone, so any worker can make it again, and duplicates are recognized by their
    number.

    An unreachable worker (after a network or power failure) blocks TensorFlow's dispatcher when the
    dispatcher has new work. If other workers still answer, the missing pieces are made in this
    process.
    """

    def prepare(self) -> None:
        """Begins without streams."""
        super().prepare()
        self._main: PieceStream | None = None
        self._retry: PieceStream | None = None
        self._is_silent = False
        self._retried = 0.0
        self._patience = min(_PATIENCE, self.service.deadline / 3)

    def receive(self, epoch: Epoch) -> None:
        """Receives a piece, if one arrives, and requests late ones again."""
        if self._main is None:
            self._main = self.begin(range(self.total))
        is_full = len(self.early) >= WINDOW
        streams = [one for one in (self._retry, None if is_full else self._main) if one is not None]
        arrived = self.poll(streams)
        if arrived is not None:
            if arrived.number < self.following or arrived.number in self.early:
                epoch.drop(arrived.number)
            else:
                self.early[arrived.number] = arrived
                self.progress()
            return
        self.check_deadline()
        is_late = is_full or self._main.has_ended or self.idle > self._patience
        if is_late and (
            self._retry is None
            or self._retry.has_ended
            or min(time.monotonic() - self._retried, self.idle) > self._patience
        ):
            self._request_again(is_full=is_full)

    def _request_again(self, *, is_full: bool) -> None:
        """Requests the missing pieces again, from any worker."""
        end = max(self.early, default=self.following) + 1
        if not is_full:
            end = max(end, self.following + WINDOW)
        missing = [n for n in range(self.following, min(end, self.total)) if n not in self.early]
        _log.warning(
            "%d pieces did not arrive, the first is %d; requesting them again",
            len(missing), missing[0],
        )  # fmt: skip
        if self._retry is not None:
            # Once requests went unanswered, stop waiting for that worker each time.
            self._is_silent = self._is_silent or not self._retry.has_given
            self.end(self._retry)
        if self._is_silent and self.others_answer():
            _log.warning("Making them in this process: a worker is unreachable")
            self._retry = self.begin_local(missing)
        else:
            self._retry = self.begin(missing)
        self._retried = time.monotonic()
        self.audit.add_retry(pieces=len(missing))


class StaticReceiver(OrderedReceiver):
    """Reads from the workers round-robin; each makes every n-th piece.

    These are TensorFlow's coordinated reads, with one consumer. They keep the order strictly, but
    skip a worker that is gone, and a restarted worker begins at its first piece again. The numbers
    of the pieces reveal both; a new job then begins with the next piece, as soon as the worker is
    back.
    """

    def prepare(self) -> None:
        """Begins without a job."""
        super().prepare()
        self._last: dict[str, int] = {}
        self._job: PieceStream | None = None
        self._begun, self._pause = -math.inf, _PAUSE

    def receive(self, epoch: Epoch) -> None:
        """Receives a piece, if one arrives, and restarts the job if it lost its order."""
        if self._job is None:
            self._begin()
            return
        arrived = self.poll([self._job])
        if arrived is None:
            self.check_deadline()
            return
        number = arrived.number
        # Each worker's pieces arrive in order.
        has_restarted = number <= self._last.get(arrived.worker, -1)
        self._last[arrived.worker] = number
        is_ahead = number > self.following and number not in self.early
        may_wait = number == self.following or (is_ahead and len(self.early) < WINDOW)
        if may_wait and not has_restarted:
            self.early[number] = arrived
            self._pause = _PAUSE
            self.progress()
            return
        epoch.drop(number)
        if has_restarted or is_ahead:
            _log.warning(
                "piece %d arrived instead of %d, because a worker restarted or is gone; "
                "restarting the job from there", number, self.following,
            )  # fmt: skip
            self.end(self._job)
            self._job = None
            self.audit.add_retry(jobs=1)

    def _begin(self) -> None:
        self.check_deadline()
        now = time.monotonic()
        if now < self._begun + self._pause:
            # The worker may be back soon; polling notices if Python shuts down.
            self.poll([])
            return
        self._last.clear()
        self._begun, self._pause = now, min(2 * self._pause, _LONGEST_PAUSE)
        # Coordinated reads need infinite datasets and named jobs.
        self._job = self.begin(
            range(self.following, _INFINITE),
            job_name=str(uuid.uuid4()), consumer_index=0, num_consumers=1,
        )  # fmt: skip


class UnorderedReceiver(Receiver):
    """Delivers pieces in the order they arrive; each epoch is a job of its own."""

    def prepare(self) -> None:
        """Begins with the first epoch."""
        self._running: tuple[Epoch, PieceStream] | None = None

    def next(self) -> ReceivedPiece:
        """Returns a piece that arrived."""
        while True:
            if self._running is None:
                epoch = next(self._epochs)
                self._running = epoch, self.begin(epoch.pieces)
            epoch, job = self._running
            arrived = self.poll([job])
            if arrived is None:
                if job.has_ended or self._has_lost_rest(epoch):
                    self._finish(epoch, job)
                continue
            self.progress()
            may_repeat = self.policy.may_repeat
            if arrived.number not in epoch.missing and not may_repeat:
                epoch.drop(arrived.number)
                continue
            epoch.give(arrived.number)
            if not epoch.missing and not may_repeat:
                self._finish(epoch, job)
            return arrived

    def _has_lost_rest(self, epoch: Epoch) -> bool:
        """Returns whether the missing pieces were lost with a worker that died.

        Raises:
          ServiceError: Nothing arrived within the deadline, and that is not why.
        """
        if self.idle <= self.service.deadline:
            return False
        may_end = not epoch.missing or self.policy.may_lose
        if not (may_end and self.others_answer()):
            raise self.timeout_error()
        return True

    def _finish(self, epoch: Epoch, job: PieceStream) -> None:
        self.end(job)
        self._running = None
        self.finish(epoch)


_RECEIVERS: dict[Sharding, type[Receiver]] = {
    "exact": ExactReceiver, "static": StaticReceiver,
    "dynamic": UnorderedReceiver, "off": UnorderedReceiver,
}  # fmt: skip


class ServicePipeline(Pipeline):
    """A `tf.data.Dataset` of batches made by a `service`, with the guarantees of a `policy`."""

    def __init__(
        self,
        plan: Plan,
        *,
        service: str,
        sharding: Sharding = "exact",
        deadline: float = 60.0,
        state: State | None = None,
        augment: Augmentation | None = None,
        versions: OpenedVersions | None = None,
    ) -> None:
        """Builds the dataset; the service is contacted when an iteration begins.

        The arguments and errors are those of `my_datasets.pipeline`; `versions` has what the caller
        has opened already.
        """
        self.policy = POLICIES[sharding]
        self.service = Service(ServiceAddress.parse(service), deadline)
        self._audit = DeliveryAudit()
        super().__init__(plan, state=state, augment=augment, versions=versions)

    def _opened(
        self, state: State | None, versions: OpenedVersions | None
    ) -> tuple[Engine, Iteration]:
        work = WorkGraph(self.plan, state, self.augment, versions)
        kind = _RECEIVERS[self.policy.sharding]
        policy, service, audit = self.policy, self.service, self._audit

        def iteration(begin: Callable[[], State]) -> tf.data.Dataset:
            def receive() -> "_Pieces":
                return _Pieces(kind(work, policy, service, audit, begin()))

            pieces = tf.data.Dataset.from_generator(receive, output_signature=work.flat_specs)
            dataset = pieces.map(lambda *flat: work.packed(flat))
            if not work.is_single:
                dataset = dataset.unbatch()
            ahead = self.plan.the(Prefetch).ahead
            if ahead:
                dataset = dataset.prefetch(ahead)
            batching = work.engine.batching
            if self.policy.is_ordered or batching.epochs is None:
                # Otherwise some pieces may be lost or repeated.
                dataset = counted(dataset, batching)
            return timed_by(self._clock, dataset)

        return work.engine, iteration

    def cardinality(self) -> tf.Tensor:
        """Returns the number of batches of an iteration, if it is known."""
        known = super().cardinality()
        unknown = tf.constant(tf.data.UNKNOWN_CARDINALITY, tf.int64)
        return known if self.policy.is_ordered or self.plan.the(Repeat).epochs is None else unknown

    def state_in(self, start: State | None, steps: int) -> State:
        """Returns an iteration's state after this many batches; PlanError if they are unordered."""
        if not self.policy.is_ordered:
            raise PlanError(
                f"With sharding={self.policy.sharding!r} batches are unordered: there is no "
                "position to resume from.",
                fix="use sharding='exact' or 'static'",
            )
        return super().state_in(start, steps)

    def at(self, state: State) -> "ServicePipeline":
        """Returns a copy of this pipeline that begins at another state.

        Raises:
          PlanError: The state belongs to another plan.
        """
        return ServicePipeline(
            self.plan.resumed(state), service=self.service.address.url,
            sharding=self.policy.sharding, deadline=self.service.deadline, state=state,
            augment=self.augment,
        )  # fmt: skip

    def stats(self) -> ServiceStats:
        """Returns how long the consumer has waited, and the delivery account of each epoch."""
        return self._audit.stats(self._clock.stats())


class _Pieces:
    """The pieces of one iterator; garbage-collecting it closes the receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        weakref.finalize(self, receiver.close)

    def __iter__(self) -> "_Pieces":
        return self

    def __next__(self) -> tuple[Array, ...]:
        return next(self._receiver)
