"""Delivers each example exactly once, in the plan's order, with any number of workers."""

import time

from my_datasets.core.logs import get_logger
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.service.delivery_audit import DeliveryAudit, Epoch
from my_datasets.input_pipeline.service.ordered import WINDOW, OrderedReceiver
from my_datasets.input_pipeline.service.piece_stream import PieceStream
from my_datasets.input_pipeline.service.policies import Policy
from my_datasets.input_pipeline.service.receiver import Service
from my_datasets.input_pipeline.service.work_graph import WorkGraph

_log = get_logger(__name__)

# Seconds without a new piece after which the next ones are requested again.
_PATIENCE = 10.0


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

    def __init__(
        self, work: WorkGraph, policy: Policy, service: Service, ledger: DeliveryAudit, start: State
    ) -> None:
        super().__init__(work, policy, service, ledger, start)
        self._main: PieceStream | None = None
        self._again: PieceStream | None = None
        self._is_silent = False
        self._asked_again = 0.0
        self._patience = min(_PATIENCE, service.deadline / 3)

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
            "%d pieces did not come, the first is %d; asked for again", len(missing), missing[0]
        )
        if self._again is not None:
            # Once requests went unanswered, stop waiting for that worker each time.
            self._is_silent = self._is_silent or not self._again.has_given
            self.end(self._again)
        if self._is_silent and self._others_answer():
            _log.warning("They are made here: a worker is gone without a word")
            self._again = self.begin_here(missing)
        else:
            self._again = self.begin(missing)
        self._asked_again = time.monotonic()
        self.ledger.asked_again(len(missing))

    def _others_answer(self) -> bool:
        dispatcher, workers = self.who_answers()
        return dispatcher and any(workers.values())
