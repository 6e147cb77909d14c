"""Accounts of which examples of each epoch were delivered, lost or repeated."""

import dataclasses
import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from my_datasets.errors import InvalidOptionError, LostExamplesError
from my_datasets.input_pipeline.frameworks.tf_dataset import StallStats
from my_datasets.input_pipeline.order.batching import Batching

Sharding = Literal["exact", "static", "dynamic", "off"]
# How workers get pieces: an idle worker takes the next one, each has its own, or each makes all.
Dealing = Literal["taken", "fixed", "all"]


@dataclass(frozen=True)
class Policy:
    """A sharding mode and its guarantees.

    Attributes:
      sharding: The mode's name.
      dealing: How workers get pieces.
      is_ordered: Whether batches come in the plan's order; otherwise in the order they are made.
      makes_again: Whether other workers make the pieces that were lost with a worker.
      may_lose: Whether an epoch may lack examples that were lost with a worker.
      may_repeat: Whether an epoch may repeat examples.
    """

    sharding: Sharding
    dealing: Dealing
    is_ordered: bool = False
    makes_again: bool = False
    may_lose: bool = False
    may_repeat: bool = False

    @property
    def guarantee(self) -> str:
        """The delivery guarantee for each example, in words."""
        if self.may_lose:
            return "at most once"
        return "at least once" if self.may_repeat else "exactly once"


_POLICIES = (
    Policy("exact", "taken", is_ordered=True, makes_again=True),
    Policy("static", "fixed", is_ordered=True),
    Policy("dynamic", "taken", may_lose=True),
    Policy("off", "all", may_repeat=True),
)


def policy_of(sharding: str) -> Policy:
    """Returns the policy of a sharding mode.

    Raises:
      InvalidOptionError: There is no such mode.
    """
    found = next((one for one in _POLICIES if one.sharding == sharding), None)
    if found is None:
        names = ", ".join(map(repr, get_args(Sharding)))
        raise InvalidOptionError(f"sharding={sharding!r} is unknown.", fix=f"use one of {names}")
    return found


# Finished epochs to remember.
_KEPT = 1000
_SHOWN = 5


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
        self._epochs: deque[EpochAccount] = deque(maxlen=_KEPT)
        self._workers: Counter[str] = Counter()
        self._skipped: dict[str, int] = {}
        self._made_again = 0
        self._begun_again = 0

    def arrived(self, maker: str, skipped: int) -> None:
        """Records a piece that arrived."""
        with self._lock:
            self._workers[maker] += 1
            self._skipped[maker] = max(skipped, self._skipped.get(maker, 0))

    def asked_again(self, pieces: int) -> None:
        """Records that this many pieces were requested again."""
        with self._lock:
            self._made_again += pieces

    def began_again(self) -> None:
        """Records that a job was restarted."""
        with self._lock:
            self._begun_again += 1

    def add(self, account: EpochAccount) -> None:
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
    """The account of a running epoch.

    Attributes:
      pieces: The numbers of its pieces.
      missing: The numbers of those that have not been delivered yet.
    """

    def __init__(self, epoch: int, pieces: range, batching: Batching) -> None:
        self.pieces = pieces
        self.missing = set(pieces)
        self._epoch = epoch
        self._batching = batching
        self._repeated: list[int] = []
        self._given = self._dropped = 0

    def has_come(self, number: int) -> bool:
        """Returns whether a piece was delivered already, or does not belong to this epoch."""
        return number not in self.missing

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

    def closed(self, policy: Policy) -> EpochAccount:
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
                f"Lost: {_shown_examples(lost)}; repeated: {_shown_examples(repeated)}",
                f"sharding={policy.sharding!r} promises each {policy.guarantee}",
                fix="resume from the last saved position, with sharding='exact'",
            )
        return account

    def _size(self, number: int) -> int:
        piece = self._batching.piece(number)
        return piece.batches * piece.rows

    def _examples(self, numbers: list[int]) -> tuple[int, ...]:
        if not numbers:
            return ()
        pieces = map(self._batching.piece, numbers)
        return tuple(np.concatenate([self._batching.numbers(one) for one in pieces]).tolist())


def _shown_examples(examples: tuple[int, ...]) -> str:
    if not examples:
        return "none"
    more = ", ..." if len(examples) > _SHOWN else ""
    return f"{len(examples):,} ({', '.join(map(str, examples[:_SHOWN]))}{more})"
