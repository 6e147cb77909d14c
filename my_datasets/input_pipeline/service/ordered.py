"""What the ordered receivers share: each example exactly once, in the plan's order."""

from collections.abc import Iterator

from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.service.delivery_audit import DeliveryAudit, Epoch
from my_datasets.input_pipeline.service.piece_stream import Arrived
from my_datasets.input_pipeline.service.policies import Policy
from my_datasets.input_pipeline.service.receiver import Receiver, Service
from my_datasets.input_pipeline.service.work_graph import WorkGraph

# Pieces that may arrive ahead of a late one.
WINDOW = 32
_EVER = 1 << 62


class OrderedReceiver(Receiver):
    """Delivers pieces in order; pieces that arrive early wait.

    Attributes:
      total: The number of pieces; a practically infinite number for a plan without an end.
      following: The number of the piece to deliver next.
      early: The pieces that arrived and are not delivered yet.
    """

    def __init__(
        self, work: WorkGraph, policy: Policy, service: Service, ledger: DeliveryAudit, start: State
    ) -> None:
        super().__init__(work, policy, service, ledger, start)
        total = self.batching.total_pieces
        self.total = _EVER if total is None else total
        self.following = 0
        self.early: dict[int, Arrived] = {}
        self._epochs: Iterator[Epoch] = self.epochs()
        self._epoch: Epoch | None = None

    def receive(self, epoch: Epoch) -> None:
        """Receives a piece, if one arrives, and adds it to `early` if it is needed."""
        raise NotImplementedError

    def next(self) -> Arrived:
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
