"""Each example exactly once, in the plan's order, by whatever workers there are."""

import logging
import time
from collections.abc import Iterator

from my_datasets.input_pipeline.service.accounts import Epoch, Ledger
from my_datasets.input_pipeline.service.policies import Policy
from my_datasets.input_pipeline.service.receiving import Receiver, Service
from my_datasets.input_pipeline.service.streams import Arrived, Stream
from my_datasets.input_pipeline.service.work import Work

_log = logging.getLogger(__name__)

# So many pieces may come before one that is late: then that is asked for again.
WINDOW = 32
# Seconds of silence after which the next pieces are asked for again.
_PATIENCE = 10.0
_EVER = 1 << 62


class ExactReceiver(Receiver):
    """Puts pieces into their order, has those made again that are late, and drops doubles.

    The dispatcher deals pieces out in their order to workers that are free, so that they come
    about in order. What a worker had when it died is never made by TensorFlow; but what is in a
    piece depends on its number alone: anybody can make it again, and one that comes twice is known.
    """

    def __init__(self, work: Work, policy: Policy, service: Service, ledger: Ledger) -> None:
        """Prepares; see `Receiver`."""
        super().__init__(work, policy, service, ledger)
        total = self.batching.total_pieces
        self._total = _EVER if total is None else total
        self._next = 0
        self._early: dict[int, Arrived] = {}
        self._main: Stream | None = None
        self._again: Stream | None = None
        self._asked_again = 0.0
        self._epochs: Iterator[Epoch] = self.epochs()
        self._epoch: Epoch | None = None
        self._patience = min(_PATIENCE, service.deadline / 3)

    def next(self) -> Arrived:
        """Returns the piece that is next in the plan's order."""
        if self._next >= self._total:
            self.close()
            raise StopIteration
        if self._epoch is None:
            self._epoch = next(self._epochs)
        if self._main is None:
            self._main = self.begin(range(self._total))
        while self._next not in self._early:
            self._receive(self._main, self._epoch)
        arrived = self._early.pop(self._next)
        self._epoch.give(self._next)
        self._next += 1
        if self._next == self._epoch.pieces.stop:
            self.account(self._epoch)
            self._epoch = None
        return arrived

    def _receive(self, main: Stream, epoch: Epoch) -> None:
        """Receives a piece, if one comes; and asks for those that are late."""
        is_full = len(self._early) >= WINDOW
        streams = [] if is_full else [main]
        if self._again is not None:
            streams.insert(0, self._again)
        arrived = self.poll(streams)
        if arrived is not None:
            if arrived.number < self._next or arrived.number in self._early:
                epoch.drop(arrived.number)
            else:
                self._early[arrived.number] = arrived
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
        end = max(self._early, default=self._next) + 1
        if not is_full:
            end = max(end, self._next + WINDOW)
        missing = [n for n in range(self._next, min(end, self._total)) if n not in self._early]
        _log.warning(
            "%d pieces did not come, the first is %d; asked for again", len(missing), missing[0]
        )
        if self._again is not None:
            self.end(self._again)
        self._again = self.begin(missing)
        self._asked_again = time.monotonic()
        self.ledger.asked_again(len(missing))
