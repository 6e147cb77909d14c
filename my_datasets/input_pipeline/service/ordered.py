"""Each example exactly once, in the plan's order: what is common to the ways to that."""

from collections.abc import Iterator

from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.service.delivery_audit import DeliveryAudit, Epoch
from my_datasets.input_pipeline.service.piece_stream import Arrived
from my_datasets.input_pipeline.service.policies import Policy
from my_datasets.input_pipeline.service.receiver import Receiver, Service
from my_datasets.input_pipeline.service.work_graph import WorkGraph

# So many pieces may come before one that is late.
WINDOW = 32
_EVER = 1 << 62


class OrderedReceiver(Receiver):
    """Gives pieces in their order; those that come early wait.

    Attributes:
      total: How many pieces there are; more than ever come of a plan without an end.
      following: The number of the piece that is given next.
      early: The pieces that came, and are not given yet.
    """

    def __init__(
        self, work: WorkGraph, policy: Policy, service: Service, ledger: DeliveryAudit, start: State
    ) -> None:
        """Prepares; see `Receiver`."""
        super().__init__(work, policy, service, ledger, start)
        total = self.batching.total_pieces
        self.total = _EVER if total is None else total
        self.following = 0
        self.early: dict[int, Arrived] = {}
        self._epochs: Iterator[Epoch] = self.epochs()
        self._epoch: Epoch | None = None

    def receive(self, epoch: Epoch) -> None:
        """Receives a piece, if one comes: one that is needed comes to `early`."""
        raise NotImplementedError

    def next(self) -> Arrived:
        """Returns the piece that is next in the plan's order."""
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
