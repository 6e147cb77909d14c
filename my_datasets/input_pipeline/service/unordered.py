"""Delivers pieces as they arrive; after each epoch it reports which were lost or repeated."""

from collections.abc import Iterator

from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.service.delivery_audit import DeliveryAudit, Epoch
from my_datasets.input_pipeline.service.piece_stream import Arrived, PieceStream
from my_datasets.input_pipeline.service.policies import Policy
from my_datasets.input_pipeline.service.receiver import Receiver, Service
from my_datasets.input_pipeline.service.work_graph import WorkGraph


class UnorderedReceiver(Receiver):
    """Delivers pieces in the order they arrive; each epoch is a job of its own."""

    def __init__(
        self, work: WorkGraph, policy: Policy, service: Service, ledger: DeliveryAudit, start: State
    ) -> None:
        super().__init__(work, policy, service, ledger, start)
        self._epochs: Iterator[Epoch] = self.epochs()
        self._epoch: Epoch | None = None
        self._job: PieceStream | None = None

    def next(self) -> Arrived:
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
