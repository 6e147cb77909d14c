"""A plan as a `tf.data.Dataset` whose batches are made by other processes.

The exact and the static receiver deliver each example exactly once, in the plan's order: from any
number of workers, or from workers with fixed shares. The unordered one delivers pieces as they
arrive, and reports after each epoch which were lost or repeated.
"""

import math
import time
import uuid
import weakref
from collections.abc import Callable, Iterator

import tensorflow as tf

from my_datasets.core.arrays import Array
from my_datasets.core.logs import get_logger
from my_datasets.errors import InvalidOptionError, PlanError
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.frameworks.tf_dataset import Iteration, Pipeline, counted, timed_by
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Prefetch, Repeat
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.service.delivery_audit import (
    DeliveryAudit,
    Epoch,
    ServiceStats,
    Sharding,
    policy_of,
)
from my_datasets.input_pipeline.service.receiver import (
    PieceStream,
    ReceivedPiece,
    Receiver,
    Service,
)
from my_datasets.input_pipeline.service.server import ServiceAddress
from my_datasets.input_pipeline.service.work_graph import BESIDE, WorkGraph
from my_datasets.input_pipeline.transform.augment import Augmentation

# Pieces that may arrive ahead of a late one.
WINDOW = 32
_ENDLESS = 1 << 62

_log = get_logger(__name__)
# Seconds without a new piece after which the next ones are requested again.
_PATIENCE = 10.0

# The end of a range that TensorFlow treats as infinite.
_EVER = (1 << 63) - 1
# Seconds between successive jobs without a result, doubled each time.
_PAUSE, _LONGEST_PAUSE = 0.5, 5.0


class OrderedReceiver(Receiver):
    """Delivers pieces in order; pieces that arrive early wait.

    Attributes:
      total: The number of pieces; a practically infinite number for a plan without an end.
      following: The number of the piece to deliver next.
      early: The pieces that arrived and are not delivered yet.
    """

    def prepare(self) -> None:
        """Begins with the first piece."""
        total = self.batching.total_pieces
        self.total = _ENDLESS if total is None else total
        self.following = 0
        self.early: dict[int, ReceivedPiece] = {}
        self._epochs: Iterator[Epoch] = self.epochs()
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
            self.account(self._epoch)
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
        self._again: PieceStream | None = None
        self._is_silent = False
        self._asked_again = 0.0
        self._patience = min(_PATIENCE, self.service.deadline / 3)

    def receive(self, epoch: Epoch) -> None:
        """Receives a piece, if one arrives, and requests late ones again."""
        if self._main is None:
            self._main = self.begin(range(self.total))
        main = self._main
        is_full = len(self.early) >= WINDOW
        streams = [] if is_full else [main]
        if self._again is not None:
            streams.insert(0, self._again)
        arrived = self.poll(streams)
        if arrived is not None:
            if arrived.number < self.following or arrived.number in self.early:
                epoch.drop(arrived.number)
            else:
                self.early[arrived.number] = arrived
                self.progress()
            return
        self.check_deadline()
        is_late = is_full or main.has_ended or self.quiet > self._patience
        if is_late and self._may_ask():
            self._ask_again(is_full=is_full)

    def _may_ask(self) -> bool:
        if self._again is None or self._again.has_ended:
            return True
        return time.monotonic() - max(self._asked_again, self._progress) > self._patience

    def _ask_again(self, *, is_full: bool) -> None:
        """Requests the missing pieces again, from any worker."""
        end = max(self.early, default=self.following) + 1
        if not is_full:
            end = max(end, self.following + WINDOW)
        missing = [n for n in range(self.following, min(end, self.total)) if n not in self.early]
        _log.warning(
            "%d pieces did not arrive, the first is %d; requesting them again",
            len(missing), missing[0],
        )  # fmt: skip
        if self._again is not None:
            # Once requests went unanswered, stop waiting for that worker each time.
            self._is_silent = self._is_silent or not self._again.has_given
            self.end(self._again)
        if self._is_silent and self._others_answer():
            _log.warning("Making them in this process: a worker is unreachable")
            self._again = self.begin_here(missing)
        else:
            self._again = self.begin(missing)
        self._asked_again = time.monotonic()
        self.ledger.asked_again(len(missing))

    def _others_answer(self) -> bool:
        dispatcher, workers = self.who_answers()
        return dispatcher and any(workers.values())


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
        began_anew = number <= self._last.get(arrived.maker, -1)
        self._last[arrived.maker] = number
        if not began_anew and (number == self.following or self._is_early(number)):
            self.early[number] = arrived
            self._pause = _PAUSE
            self.progress()
            return
        epoch.drop(number)
        if began_anew or (number > self.following and number not in self.early):
            _log.warning(
                "piece %d arrived instead of %d, because a worker restarted or is gone; "
                "restarting the job from there", number, self.following,
            )  # fmt: skip
            self.end(self._job)
            self._job = None
            self.ledger.began_again()

    def _is_early(self, number: int) -> bool:
        """Returns whether a piece may wait for those before it."""
        is_new = number > self.following and number not in self.early
        return is_new and len(self.early) < WINDOW

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
            range(self.following, _EVER),
            job_name=str(uuid.uuid4()),
            consumer_index=0,
            num_consumers=1,
        )


class UnorderedReceiver(Receiver):
    """Delivers pieces in the order they arrive; each epoch is a job of its own."""

    def prepare(self) -> None:
        """Begins with the first epoch."""
        self._epochs: Iterator[Epoch] = self.epochs()
        self._epoch: Epoch | None = None
        self._job: PieceStream | None = None

    def next(self) -> ReceivedPiece:
        """Returns a piece that arrived."""
        while True:
            if self._epoch is None or self._job is None:
                self._epoch = next(self._epochs)
                self._job = self.begin(self._epoch.pieces)
            arrived = self.poll([self._job])
            if arrived is None:
                self._wait(self._epoch, self._job)
                continue
            self.progress()
            if self._epoch.has_come(arrived.number) and not self.policy.may_repeat:
                self._epoch.drop(arrived.number)
                continue
            self._epoch.give(arrived.number)
            if not self._epoch.missing and not self.policy.may_repeat:
                self._over(self._epoch, self._job)
            return arrived

    def _wait(self, epoch: Epoch, job: PieceStream) -> None:
        """Ends an epoch of which nothing more will arrive."""
        if job.has_ended:
            self._over(epoch, job)
        elif self.quiet > self.service.deadline:
            dispatcher, workers = self.who_answers()
            is_enough = not epoch.missing or self.policy.may_lose
            if not (is_enough and dispatcher and any(workers.values())):
                raise self.overdue()
            # The missing pieces were lost with a worker that died.
            self._over(epoch, job)

    def _over(self, epoch: Epoch, job: PieceStream) -> None:
        self.end(job)
        self._epoch = self._job = None
        self.account(epoch)


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

        Args:
          plan: The plan.
          service: The dispatcher's URL, such as `grpc://localhost:5050`.
          sharding: How pieces are distributed to workers; see `docs/feeding.md`.
          deadline: Fail after this many seconds without anything new.
          state: Where to begin; None for the beginning.
          augment: Augments the images, in the workers.
          versions: What the caller has opened already; None for nothing.

        Raises:
          FeatureError: Values have different shapes and cannot be batched.
          InvalidOptionError: An option is invalid.
          PlanError: The state belongs to another plan, or the data changed.
          ServiceError: The augmentation cannot be sent to other processes.
        """
        if not 0 < deadline < math.inf:
            raise InvalidOptionError(
                f"deadline={deadline} is not valid.", fix="give seconds, for example 60"
            )
        self.policy = policy_of(sharding)
        self.service = Service(ServiceAddress.parse(service), deadline)
        self._ledger = DeliveryAudit()
        super().__init__(plan, state=state, augment=augment, versions=versions)

    def _opened(
        self, state: State | None, versions: OpenedVersions | None
    ) -> tuple[Engine, Iteration]:
        work = WorkGraph(self.plan, state, self.augment, versions)
        receivers: dict[str, type[Receiver]] = {"exact": ExactReceiver, "static": StaticReceiver}
        kind = receivers.get(self.policy.sharding, UnorderedReceiver)
        policy, service, ledger = self.policy, self.service, self._ledger

        def iteration(begin: Callable[[], State]) -> tf.data.Dataset:
            def receive() -> "_Pieces":
                return _Pieces(kind(work, policy, service, ledger, begin()))

            pieces = tf.data.Dataset.from_generator(
                receive, output_signature=work.flat_specs[len(BESIDE) :]
            )
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
        """Returns the state of an iteration after this many batches.

        Raises:
          PlanError: The batches are unordered.
        """
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
        return self._ledger.stats(self._clock.stats())


class _Pieces:
    """The pieces of one iterator; garbage-collecting it closes the receiver."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        weakref.finalize(self, receiver.close)

    def __iter__(self) -> "_Pieces":
        return self

    def __next__(self) -> tuple[Array, ...]:
        return next(self._receiver)
