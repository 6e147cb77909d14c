"""What each sharding mode guarantees, and which examples of each epoch were delivered."""

import dataclasses
import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import Literal

from my_datasets.errors import LostExamplesError
from my_datasets.input_pipeline.frameworks.tf_dataset import StallStats
from my_datasets.input_pipeline.order.batching import Batching

Sharding = Literal["exact", "static", "dynamic", "off"]
# Finished epochs to remember; examples to name in an error.
_REMEMBERED, _NAMED = 1000, 5


@dataclass(frozen=True)
class Policy:
    """A sharding mode and its guarantees.

    Attributes:
      distribution: TensorFlow's name for how workers get pieces: an idle worker takes the next one
        (`DYNAMIC`), each has its own (`HINT`), or each makes all (`OFF`).
      is_ordered: Whether batches come in the plan's order; otherwise in the order they are made.
      may_lose: Whether an epoch may lack examples that were lost with a worker.
      may_repeat: Whether an epoch may repeat examples.
    """

    sharding: Sharding
    distribution: Literal["DYNAMIC", "HINT", "OFF"]
    is_ordered: bool = False
    may_lose: bool = False
    may_repeat: bool = False

    @property
    def guarantee(self) -> str:
        """The delivery guarantee for each example, in words."""
        if self.may_lose:
            return "at most once"
        return "at least once" if self.may_repeat else "exactly once"


POLICIES: dict[Sharding, Policy] = {
    "exact": Policy("exact", "DYNAMIC", is_ordered=True),
    "static": Policy("static", "HINT", is_ordered=True),
    "dynamic": Policy("dynamic", "DYNAMIC", may_lose=True),
    "off": Policy("off", "OFF", may_repeat=True),
}


@dataclass(frozen=True)
class EpochAccount:
    """What happened to the examples of an epoch, or of the rest of one.

    Attributes:
      epoch: Counted from 0.
      expected: The number of examples in its batches.
      given: The number of examples delivered to the trainer, with repetitions.
      lost: The storage numbers of the examples that were not delivered.
      repeated: The storage numbers of the examples delivered again, once per repetition.
      dropped: The number of examples dropped because a worker sent them again after they had
        arrived.
    """

    epoch: int
    expected: int
    given: int
    lost: tuple[int, ...] = ()
    repeated: tuple[int, ...] = ()
    dropped: int = 0


@dataclass(frozen=True)
class ServiceStats(StallStats):
    """Statistics of a pipeline whose batches come from a service.

    Attributes:
      epochs: The accounts of the finished epochs; of the last 1,000.
      made_again: The number of pieces requested again because they were lost or late.
      begun_again: The number of times an interrupted job was restarted.
      workers: The number of pieces from each worker, by its address.
    """

    epochs: tuple[EpochAccount, ...] = ()
    made_again: int = 0
    begun_again: int = 0
    workers: dict[str, int] = dataclasses.field(default_factory=dict)


class DeliveryAudit:
    """Keeps the accounts of one pipeline, over all its iterators; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: deque[EpochAccount] = deque(maxlen=_REMEMBERED)
        self._workers: Counter[str] = Counter()
        self._skipped: dict[str, int] = {}
        self._made_again = self._begun_again = 0

    def add_piece(self, worker: str, skipped: int) -> None:
        """Records a piece that arrived."""
        with self._lock:
            self._workers[worker] += 1
            self._skipped[worker] = max(skipped, self._skipped.get(worker, 0))

    def add_retry(self, *, pieces: int = 0, jobs: int = 0) -> None:
        """Records that pieces were requested again, or a job was restarted."""
        with self._lock:
            self._made_again += pieces
            self._begun_again += jobs

    def add_epoch(self, account: EpochAccount) -> None:
        """Records a finished epoch."""
        with self._lock:
            self._epochs.append(account)

    def stats(self, waited: StallStats) -> ServiceStats:
        """Returns the statistics, including how long the consumer waited."""
        with self._lock:
            return ServiceStats(
                waited.steps, waited.waited, waited.elapsed, sum(self._skipped.values()),
                tuple(self._epochs), self._made_again, self._begun_again, dict(self._workers),
            )  # fmt: skip


class Epoch:
    """The account of a running epoch: the numbers of its pieces, and of those not yet delivered."""

    def __init__(self, epoch: int, pieces: range, batching: Batching) -> None:
        self.pieces = pieces
        self.missing = set(pieces)
        self._epoch = epoch
        self._batching = batching
        self._repeated: list[int] = []
        self._given = self._dropped = 0

    def give(self, number: int) -> None:
        """Records that a piece is delivered to the trainer, for the first time or again."""
        self._given += self._size(number)
        if number in self.missing:
            self.missing.remove(number)
        else:
            self._repeated.append(number)

    def drop(self, number: int) -> None:
        """Records that a piece arrived again and is dropped."""
        self._dropped += self._size(number)

    def close(self, policy: Policy) -> EpochAccount:
        """Returns the account of the epoch, which has ended.

        Raises:
          LostExamplesError: It violates the policy's guarantee.
        """
        expected = sum(map(self._size, self.pieces))
        lost, repeated = self._examples(sorted(self.missing)), self._examples(self._repeated)
        account = EpochAccount(self._epoch, expected, self._given, lost, repeated, self._dropped)
        if (lost and not policy.may_lose) or (repeated and not policy.may_repeat):
            raise LostExamplesError(
                f"Epoch {self._epoch} had {self._given:,} examples instead of {expected:,}.",
                f"Lost: {_named(lost)}; repeated: {_named(repeated)}",
                f"sharding={policy.sharding!r} promises each {policy.guarantee}",
                fix="resume from the last saved position, with sharding='exact'",
            )
        return account

    def _size(self, number: int) -> int:
        piece = self._batching.piece(number)
        return piece.batches * piece.rows

    def _examples(self, numbers: list[int]) -> tuple[int, ...]:
        pieces = map(self._batching.piece, numbers)
        return tuple(n for one in pieces for n in self._batching.numbers(one).tolist())


def _named(examples: tuple[int, ...]) -> str:
    if not examples:
        return "none"
    more = ", ..." if len(examples) > _NAMED else ""
    return f"{len(examples):,} ({', '.join(map(str, examples[:_NAMED]))}{more})"
