"""Several datasets as one, each with its share of the examples.

Which dataset the next example comes from is computed, as all orders are here: of any run of
examples each dataset gets its share to within one or two (Bresenham's line, for one dataset after
the other), and within blocks the examples are put into an order that looks random, so that hosts
that take every n-th of them all see the same mixture. Each dataset goes on where it was in the
epoch before, and begins an epoch of its own when it is through.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from my_datasets.errors import InvalidOptionError, PlanError, explain
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.missing import plain
from my_datasets.input_pipeline.order.permutation import ORDER_VERSION, EpochOrder, Order, Places
from my_datasets.input_pipeline.plan.stages import Stop
from my_datasets.input_pipeline.read.source import IndexedExamples
from my_datasets.input_pipeline.stopwatch import timed
from my_datasets.metadata.features import Leaf

# Examples that are put into another order together.
_BLOCK = 4096
# Shares are rounded to a millionth.
_WHOLE = 1 << 20


def shares(
    sizes: Sequence[int], weights: Sequence[float] | None, temperature: float
) -> tuple[int, ...]:
    """Returns how many examples of each dataset there are among as many as the sum of all.

    Args:
      sizes: How many examples the datasets have.
      weights: Of each; None for those of their sizes.
      temperature: Weights are raised to the power of 1 / temperature: 1 leaves them as they are,
        more makes them more alike (Arivazhagan et al., "Massively multilingual neural machine
        translation in the wild", 2019, section 4.2).

    Raises:
      InvalidOptionError: They make no sense.
    """
    given = list(sizes if weights is None else weights)
    if len(given) != len(sizes) or not all(math.isfinite(one) and one > 0 for one in given):
        raise InvalidOptionError(
            explain(
                f"weights={given!r} make no sense for {len(sizes)} datasets.",
                "Expected a number above 0 for each",
                fix="leave out datasets that are not wanted",
            )
        )
    if not (math.isfinite(temperature) and temperature > 0):
        raise InvalidOptionError(
            explain(f"temperature={temperature!r} makes no sense.", fix="give a number above 0")
        )
    if temperature == 1 and all(float(one).is_integer() for one in given):
        divisor = math.gcd(*map(int, given))
        found = tuple(int(one) // divisor for one in given)
        if sum(found) < _WHOLE * _WHOLE // 256:
            return found
    most = max(given)
    powers = [(one / most) ** (1 / temperature) for one in given]
    return tuple(max(1, round(_WHOLE * power / sum(powers))) for power in powers)


@dataclass(frozen=True)
class MixedOrder:
    """The order of a mixture.

    Attributes:
      orders: Those of the datasets.
      shares: How many examples of each there are among as many as the sum of all.
      stop: When an epoch ends: with the first dataset of which all examples were given, or with the
        last.
      seed: Makes another order of the datasets.
      version: As of `Order`.
    """

    orders: tuple[EpochOrder, ...]
    shares: tuple[int, ...]
    stop: Stop
    seed: int
    version: int = ORDER_VERSION

    @functools.cached_property
    def size(self) -> int:
        """How many examples an epoch has."""
        sizes = [order.size for order in self.orders]
        low, high = 0, 2 * sum(self.shares) * max(sizes)
        while low + 1 < high:  # the last number of examples that does not yet stop
            middle = (low + high) // 2
            counts = self._counts(middle)
            if self.stop == "first":
                is_over = any(c > size for c, size in zip(counts, sizes, strict=True))
            else:
                is_over = all(c >= size for c, size in zip(counts, sizes, strict=True))
            low, high = (low, middle) if is_over else (middle, high)
        return low if self.stop == "first" else high

    def __call__(self, epoch: int, places: Places) -> Places:
        """Returns the numbers of the examples at some places of an epoch; see `EpochOrder`.

        Those of the second dataset come after those of the first, and so on; each time that a
        dataset begins anew its numbers are larger by the size of all, so that what is drawn for
        its examples is drawn anew.
        """
        all_sizes = sum(order.size for order in self.orders)
        left = epoch * self.size + self._shuffled(epoch, places)
        rows = np.arange(len(places))
        found = np.empty(len(places), np.int64)
        begin, whole = 0, sum(self.shares)
        for order, share in zip(self.orders, self.shares, strict=True):
            before = _count(left, share, whole)
            is_here = _count(left + 1, share, whole) > before
            found[rows[is_here]] = begin + _of_epochs(order, before[is_here], all_sizes)
            rows, left = rows[~is_here], (left - before)[~is_here]
            begin, whole = begin + order.size, whole - share
        return found

    def _shuffled(self, epoch: int, places: Places) -> Places:
        blocks = places // _BLOCK
        found = np.empty_like(places)
        for block in np.unique(blocks).tolist():
            begin = block * _BLOCK
            order = Order(min(_BLOCK, self.size - begin), self.seed, self.version)
            rows = np.flatnonzero(blocks == block)
            key = epoch * -(-self.size // _BLOCK) + block
            found[rows] = begin + order(key, places[rows] - begin)
        return found

    def _counts(self, total: int) -> list[int]:
        """Returns how many of the first examples are of each dataset."""
        counts, whole = [], sum(self.shares)
        for share in self.shares:
            counts.append(total * share // whole)
            total, whole = total - counts[-1], whole - share
        return counts


def _count(left: Places, share: int, whole: int) -> Places:
    """Returns how many of the first so many examples are of a dataset with a share of the whole."""
    full, rest = np.divmod(left, whole)  # for their product to have no more than 64 bits
    found: Places = full * share + rest * share // whole
    return found


def _of_epochs(order: EpochOrder, places: Places, step: int) -> Places:
    """Returns the examples at places that are counted on through all epochs.

    Args:
      order: The order.
      places: The places.
      step: How much larger numbers are in each epoch.
    """
    epochs, rest = np.divmod(places, order.size)
    found = np.empty_like(places)
    for epoch in np.unique(epochs).tolist():
        rows = epochs == epoch
        found[rows] = epoch * step + order(epoch, rest[rows])
    return found


@dataclass(frozen=True)
class MixedSource:
    """The examples of several datasets, one's after the other's.

    Attributes:
      parts: The datasets.
      names: Their names, for messages.
    """

    parts: tuple[IndexedExamples, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        first = _forms(self.parts[0].tree)
        for name, part in zip(self.names[1:], self.parts[1:], strict=True):
            other = _forms(part.tree)
            if first != other:
                differing = [one for one in {**first, **other} if first.get(one) != other.get(one)]
                raise PlanError(
                    explain(
                        f"{self.names[0]} and {name} cannot be mixed: their examples differ.",
                        *(
                            f"{one or 'The example'}: {_shown(first.get(one))} in the one, "
                            f"{_shown(other.get(one))} in the other"
                            for one in differing
                        ),
                        fix="choose features they have in common with columns=[...], and an "
                        "image_size",
                    )
                )

    @property
    def tree(self) -> Any:
        """The leaves of an example, nested as the columns are."""
        return self.parts[0].tree

    @property
    def skipped(self) -> int:
        """How many different examples were passed over so far."""
        return sum(part.skipped for part in self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def columns(self, numbers: Places, epoch: int) -> Any:  # noqa: ARG002 - each has its own
        """Returns examples of whichever datasets, as columns."""
        ends = np.cumsum([len(part) for part in self.parts])
        epochs, inside = np.divmod(numbers, len(self))
        which = np.searchsorted(ends, inside, side="right")
        found, places = [], []
        for i, own in sorted(set(zip(which.tolist(), epochs.tolist(), strict=True))):
            rows = np.flatnonzero((which == i) & (epochs == own))
            part = self.parts[i]
            columns = part.columns(inside[rows] - (ends[i] - len(part)), own)
            found.append(pytree.in_order_of(self.tree, columns))
            places.append(rows)
        with timed("mix"):
            return pytree.merged(found, places)


def _forms(tree: Any, path: str = "") -> dict[str, Leaf]:
    """Returns the leaves of a tree by where they stand, as far as they are about values."""
    if isinstance(tree, Leaf):
        return {path: replace(plain(tree), path=(), encoding="none", is_optional=False)}
    nodes = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    return {
        name: leaf
        for key, node in nodes
        for name, leaf in _forms(node, f"{path}/{key}".lstrip("/")).items()
    }


def _shown(leaf: Leaf | None) -> str:
    if leaf is None:
        return "nothing"
    labels = f" labelled {', '.join(leaf.labels)}" if leaf.labels else ""
    sequence = f" in sequences of {leaf.sequence}" if leaf.sequence else ""
    return f"{leaf.form} {leaf.dtype} of shape {leaf.shape}{sequence}{labels}"
