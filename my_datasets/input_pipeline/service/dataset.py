"""A plan as a `tf.data.Dataset` whose batches are made by other processes."""

import math
import weakref
from collections.abc import Callable

import tensorflow as tf

from my_datasets.core.arrays import Array
from my_datasets.errors import InvalidOptionError, PlanError
from my_datasets.input_pipeline.engine import Engine
from my_datasets.input_pipeline.frameworks.tf_dataset import Iteration, Pipeline, counted, timed_by
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Prefetch, Repeat
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.service.address import ServiceAddress
from my_datasets.input_pipeline.service.delivery_audit import DeliveryAudit, ServiceStats
from my_datasets.input_pipeline.service.policies import Sharding, policy_of
from my_datasets.input_pipeline.service.receiver import Receiver, Service
from my_datasets.input_pipeline.service.sharding_policies import (
    ExactReceiver,
    StaticReceiver,
    UnorderedReceiver,
)
from my_datasets.input_pipeline.service.work_graph import BESIDE, WorkGraph
from my_datasets.input_pipeline.transform.augment import Augmentation


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
