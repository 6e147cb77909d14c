"""A plan as a `tf.data.Dataset` whose batches other processes make."""

import math
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from my_datasets.errors import InvalidOptionError, PlanError, explain
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.frameworks.tf_dataset import Iteration, Pipeline, counted, timed_by
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Prefetch, Repeat
from my_datasets.input_pipeline.service.address import ServiceAddress
from my_datasets.input_pipeline.service.delivery_audit import DeliveryAudit, ServiceStats
from my_datasets.input_pipeline.service.exact import ExactReceiver
from my_datasets.input_pipeline.service.policies import Sharding, policy_of
from my_datasets.input_pipeline.service.receiver import Receiver, Service
from my_datasets.input_pipeline.service.static import StaticReceiver
from my_datasets.input_pipeline.service.unordered import UnorderedReceiver
from my_datasets.input_pipeline.service.work_graph import BESIDE, WorkGraph
from my_datasets.input_pipeline.transform.augment import Augmentation


class ServicePipeline(Pipeline):
    """A `tf.data.Dataset` of batches that a tf.data service makes.

    Attributes:
      service: The service.
      policy: What is promised.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        service: str,
        sharding: Sharding = "exact",
        deadline: float = 60.0,
        state: State | None = None,
        augment: Augmentation | None = None,
    ) -> None:
        """Builds the dataset; the service is asked when it is gone through.

        Args:
          plan: The plan.
          service: The dispatcher's URL, such as `grpc://localhost:5050`.
          sharding: How pieces are dealt out; see `docs/feeding.md`.
          deadline: After so many seconds without anything new, waiting ends with an error.
          state: Where to begin; None for the beginning.
          augment: Changes the images, in the workers.

        Raises:
          FeatureError: Values of different shapes cannot be put into batches.
          InvalidOptionError: An option makes no sense.
          PlanError: The state belongs to another plan, or the data changed.
          ServiceError: The augmentation cannot be sent to other processes.
        """
        if not 0 < deadline < math.inf:
            raise InvalidOptionError(
                explain(f"deadline={deadline} is none.", fix="give seconds, for example 60")
            )
        self.policy = policy_of(sharding)
        self.service = Service(ServiceAddress.parse(service), deadline)
        self._ledger = DeliveryAudit()
        super().__init__(plan, state=state, augment=augment)

    def _opened(self, state: State | None) -> tuple[Engine, Iteration]:
        work = WorkGraph(self.plan, state, self.augment)
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
                # Else some may be lost or repeated.
                dataset = counted(dataset, batching)
            return timed_by(self._clock, dataset)

        return work.engine, iteration

    def cardinality(self) -> tf.Tensor:
        """Returns how many batches an iteration has, if it is known."""
        known = super().cardinality()
        unknown = tf.constant(tf.data.UNKNOWN_CARDINALITY, tf.int64)
        return known if self.policy.is_ordered or self.plan.the(Repeat).epochs is None else unknown

    def state_in(self, start: State | None, steps: int) -> State:
        """Returns where an iteration is after so many batches.

        Raises:
          PlanError: Batches come in no order.
        """
        if not self.policy.is_ordered:
            raise PlanError(
                explain(
                    f"With sharding={self.policy.sharding!r} batches come as they are made: there "
                    "is no position to go on from.",
                    fix="use sharding='exact' or 'static'",
                )
            )
        return super().state_in(start, steps)

    def at(self, state: State) -> "ServicePipeline":
        """Returns the same pipeline, which begins elsewhere.

        Raises:
          PlanError: The state belongs to another plan.
        """
        return ServicePipeline(
            self.plan.resumed(state), service=self.service.address.url,
            sharding=self.policy.sharding, deadline=self.service.deadline, state=state,
            augment=self.augment,
        )  # fmt: skip

    def stats(self) -> ServiceStats:
        """Returns how long the consumer has waited, and what became of each epoch's examples."""
        return self._ledger.stats(self._clock.stats())


class _Pieces:
    """The pieces of one iterator; when that is gone, nothing is wanted any more."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        weakref.finalize(self, receiver.close)

    def __iter__(self) -> "_Pieces":
        return self

    def __next__(self) -> tuple[Any, ...]:
        return next(self._receiver)
