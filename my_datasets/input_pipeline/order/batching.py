"""Maps batch numbers to examples, for any number of hosts."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.order.permutation import EpochOrder, Places
from my_datasets.input_pipeline.order.state import State, count_in
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Batch, Prefetch, Repeat, Shard


@dataclass(frozen=True)
class Piece:
    """Batches that are made together.

    Attributes:
      first: The place of their first example in this host's part of the epoch.
      rows: The number of examples in each.
      position: The number of examples of the epoch that were delivered before this iteration.
    """

    epoch: int
    first: int
    batches: int
    rows: int
    position: int = 0


@dataclass(frozen=True)
class Batching:
    """The batches of an iteration on one host.

    Attributes:
      epochs: The number of epochs in a full iteration; None for no end.
      at_once: The number of batches in a full piece.
    """

    order: EpochOrder
    start: State
    batch: Batch
    shard: Shard = dataclasses.field(default_factory=lambda: Shard(0, 1))
    epochs: int | None = None
    at_once: int = 1

    @classmethod
    def of(cls, plan: Plan, order: EpochOrder, state: State | None, *, single: bool) -> "Batching":
        """Returns the batches of a plan, from a state or from the beginning.

        The number of hosts and the batch size may have changed since the state was saved. With
        `single`, each batch is a piece of its own.

        Raises:
          PlanError: The state belongs to other data or another order.
        """
        beginning = plan.beginning
        start = state or beginning
        start.check(beginning)
        batch = plan.the(Batch)
        at_once = 1 if single else max(1, plan.the(Prefetch).rows // batch.size)
        shard = plan.get(Shard) or Shard(0, 1)
        return cls(order, start, batch, shard, plan.the(Repeat).epochs, at_once)

    def at(self, start: State) -> "Batching":
        """Returns the batches of an iteration that begins elsewhere."""
        return dataclasses.replace(self, start=start)

    @property
    def end(self) -> int | None:
        """The epoch before which the iteration ends; None for no end."""
        return None if self.epochs is None else self.start.following(self.epochs).epoch

    @property
    def is_whole(self) -> bool:
        """Whether the iteration has as many batches as later ones."""
        return not self.start.position and not self.start.epoch % (self.epochs or 1)

    def examples(self, epoch: int) -> int:
        """Returns the number of this host's examples in an epoch."""
        return self.shard.examples(self.order.size - self._begin(epoch))

    def steps(self, epoch: int) -> int:
        """Returns the number of batches in an epoch."""
        full, rest = divmod(self.examples(epoch), self.batch.size)
        return full + (rest > 0 and not self.batch.drop_remainder)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in a full epoch."""
        return self.steps(self.start.epoch + 1)

    @property
    def steps_per_iteration(self) -> int | None:
        """The number of batches in a full iteration; None for no end."""
        return None if self.epochs is None else self.epochs * self.steps_per_epoch

    @property
    def total_steps(self) -> int | None:
        """The number of batches in this iteration; None for no end."""
        return self._over_all_epochs(self.steps)

    @property
    def total_pieces(self) -> int | None:
        """The number of pieces in this iteration; None for no end."""
        return self._over_all_epochs(self.pieces)

    def pieces(self, epoch: int) -> int:
        """Returns the number of pieces in an epoch; a smaller last batch is one of its own."""
        full, rest = divmod(self.examples(epoch), self.batch.size)
        return -(-full // self.at_once) + (rest > 0 and not self.batch.drop_remainder)

    def piece(self, number: int) -> Piece:
        """Returns the number-th piece, from 0, in constant time."""
        epoch = self.start.epoch
        in_first = self.pieces(epoch)
        if number >= in_first:
            more, number = divmod(number - in_first, max(1, self.pieces(epoch + 1)))
            epoch += 1 + more
        full, rest = divmod(self.examples(epoch), self.batch.size)
        begin = number * self.at_once
        if begin < full:
            batches = min(self.at_once, full - begin)
            first, rows = begin * self.batch.size, self.batch.size
        else:
            first, batches, rows = full * self.batch.size, 1, rest
        return Piece(epoch, first, batches, rows, self._begin(epoch))

    def numbers(self, piece: Piece) -> Places:
        """Returns the numbers of a piece's examples."""
        # Places beyond the end wrap around: the epoch's first examples make the parts equal.
        return self.order(piece.epoch, self._places(piece) % self.order.size)

    def with_partners(self, piece: Piece, partners: int) -> tuple[Places, Places]:
        """Returns the numbers of a piece's examples, and of `partners` predecessors of each.

        They are in the epoch's order; with them come the rows of the piece's own examples.
        """
        own = self._places(piece)
        places = np.unique(own[:, None] - np.arange(partners + 1))
        return self.order(piece.epoch, places % self.order.size), np.searchsorted(places, own)

    def _places(self, piece: Piece) -> Places:
        own = np.arange(piece.first, piece.first + piece.batches * piece.rows)
        return piece.position + own * self.shard.count + self.shard.index

    def state_after(self, steps: int) -> State:
        """Returns the state after this many batches, a whole number from 0."""
        given = count_in(steps)
        if given is None:
            raise InvalidOptionError(
                f"state_after({steps!r}): steps is not valid.",
                "Expected: a whole number of batches, from 0",
                fix="give as many as training took, such as state_after(100)",
            )
        steps = given
        epoch, done = self.start.epoch, self.steps(self.start.epoch)
        begin = self.start.position
        if steps >= done:
            more, steps = divmod(steps - done, max(1, self.steps_per_epoch))
            epoch, begin = epoch + 1 + more, 0
        position = begin + steps * self.batch.size * self.shard.count
        return dataclasses.replace(self.start, epoch=epoch, position=min(position, self.order.size))

    def _begin(self, epoch: int) -> int:
        return self.start.position if epoch == self.start.epoch else 0

    def _over_all_epochs(self, count: Callable[[int], int]) -> int | None:
        """Returns a sum over all epochs; all but the first have the same count."""
        if self.end is None:
            return None
        left = self.end - self.start.epoch
        return count(self.start.epoch) + (left - 1) * count(self.start.epoch + 1)
