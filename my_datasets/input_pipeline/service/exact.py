"""Each example exactly once, in the plan's order, by whatever workers there are."""

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

# Seconds of silence after which the next pieces are asked for again.
_PATIENCE = 10.0


class ExactReceiver(OrderedReceiver):
    """Puts pieces into their order, has those made again that are late, and drops doubles.

    The dispatcher deals pieces out in their order to workers that are free, so that they come
    about in order. What a worker had when it died is never made by TensorFlow; but what is in a
    piece depends on its number alone: anybody can make it again, and one that comes twice is known.

    A machine that is gone without a word (its network, or its power) holds up TensorFlow's
    dispatcher when that has new work. Where others still answer, what is missing is made here.
    """

    def __init__(
        self, work: WorkGraph, policy: Policy, service: Service, ledger: DeliveryAudit, start: State
    ) -> None:
        """Prepares; see `Receiver`."""
        super().__init__(work, policy, service, ledger, start)
        self._main: PieceStream | None = None
        self._again: PieceStream | None = None
        self._is_silent = False
        self._asked_again = 0.0
        self._patience = min(_PATIENCE, service.deadline / 3)

    def receive(self, epoch: Epoch) -> None:
        """Receives a piece, if one comes; and asks for those that are late."""
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
        """Has the pieces made that did not come, by any worker."""
        end = max(self.early, default=self.following) + 1
        if not is_full:
            end = max(end, self.following + WINDOW)
        missing = [n for n in range(self.following, min(end, self.total)) if n not in self.early]
        _log.warning(
            "%d pieces did not come, the first is %d; asked for again", len(missing), missing[0]
        )
        if self._again is not None:
            # Whoever was silent once is not waited for each time.
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
