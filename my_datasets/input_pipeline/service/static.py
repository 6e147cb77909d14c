"""Delivers each example exactly once, in the plan's order, from workers with fixed shares."""

import math
import time
import uuid

from my_datasets.core.logs import get_logger
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.service.delivery_audit import DeliveryAudit, Epoch
from my_datasets.input_pipeline.service.ordered import WINDOW, OrderedReceiver
from my_datasets.input_pipeline.service.piece_stream import PieceStream
from my_datasets.input_pipeline.service.policies import Policy
from my_datasets.input_pipeline.service.receiver import Service
from my_datasets.input_pipeline.service.work_graph import WorkGraph

_log = get_logger(__name__)

# The end of a range that TensorFlow treats as infinite.
_EVER = (1 << 63) - 1
# Seconds between successive jobs without a result, doubled each time.
_PAUSE, _LONGEST_PAUSE = 0.5, 5.0


class StaticReceiver(OrderedReceiver):
    """Reads from the workers round-robin; each makes every n-th piece.

    These are TensorFlow's coordinated reads, with one consumer. They keep the order strictly, but
    skip a worker that is gone, and a restarted worker begins at its first piece again. The numbers
    of the pieces reveal both; a new job then begins with the next piece, as soon as the worker is
    back.
    """

    def __init__(
        self, work: WorkGraph, policy: Policy, service: Service, ledger: DeliveryAudit, start: State
    ) -> None:
        super().__init__(work, policy, service, ledger, start)
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
                "piece %d came in place of %d, as a worker began anew, or is not there; the job "
                "is begun again from there", number, self.following,
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
