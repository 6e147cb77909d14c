"""Mixes several datasets, each with its share of the examples.

The dataset of each example is computed, like all orders: in any run of examples each dataset has
its share to within one or two (Bresenham's line, one dataset at a time), and examples are shuffled
within blocks, so hosts that take every n-th example all see the same mixture. Each dataset
continues where it was in the previous epoch, and begins an epoch of its own when it is exhausted.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from my_datasets.errors import InvalidOptionError, PlanError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.missing import plain
from my_datasets.input_pipeline.decode.pytree import Columns, Leaves
from my_datasets.input_pipeline.order.permutation import ORDER_VERSION, EpochOrder, Order, Places
from my_datasets.input_pipeline.plan.stages import Stop
from my_datasets.input_pipeline.read.source import IndexedExamples
from my_datasets.input_pipeline.stopwatch import timed
from my_datasets.metadata.features import Leaf

# Examples that are shuffled together.
_BLOCK = 4096
# Shares are rounded to a millionth.
_WHOLE = 1 << 20


def shares(
    sizes: Sequence[int], weights: Sequence[float] | None, temperature: float
) -> tuple[int, ...]:
    """Returns the number of examples of each dataset among as many as the sum of all shares.

    The weights are above 0; None for the sizes. They are raised to the power of 1 / `temperature`,
    which is above 0: 1 leaves them as they are, more makes them more alike (Arivazhagan et al.,
    "Massively multilingual neural machine translation in the wild", 2019, section 4.2).

    Raises:
      InvalidOptionError: The weights or the temperature are not valid.
    """
    given = list(sizes if weights is None else weights)
    if len(given) != len(sizes) or not all(math.isfinite(one) and one > 0 for one in given):
        raise InvalidOptionError(
            f"weights={given!r} is not valid for {len(sizes)} datasets.",
            "Expected a number above 0 for each",
            fix="give such numbers, and leave out datasets that you do not want",
        )
    if not (math.isfinite(temperature) and temperature > 0):
        raise InvalidOptionError(
            f"temperature={temperature!r} is not valid.", fix="give a number above 0"
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
      shares: See `shares`.
      stop: Whether an epoch ends with the first exhausted dataset, or with the last.
      seed: The seed of the order in which datasets take turns.
    """

    orders: tuple[EpochOrder, ...]
    shares: tuple[int, ...]
    stop: Stop
    seed: int
    version: int = ORDER_VERSION

    @functools.cached_property
    def size(self) -> int:
        """The number of examples in an epoch."""
        sizes = [order.size for order in self.orders]
        low, high = 0, 2 * sum(self.shares) * max(sizes)
        while low + 1 < high:  # finds the largest number of examples before the stop
            middle = (low + high) // 2
            counts = self._counts(middle)
            if self.stop == "first":
                is_over = any(c > size for c, size in zip(counts, sizes, strict=True))
            else:
                is_over = all(c >= size for c, size in zip(counts, sizes, strict=True))
            low, high = (low, middle) if is_over else (middle, high)
        return low if self.stop == "first" else high

    def __call__(self, epoch: int, places: Places) -> Places:
        """Returns the numbers of the examples at these places; see `EpochOrder`.

        The numbers of the second dataset follow those of the first, and so on. Each time a dataset
        begins again, its numbers grow by the sum of all sizes, so its examples get new random
        numbers.
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
        """Returns how many of the first `total` examples belong to each dataset."""
        counts, whole = [], sum(self.shares)
        for share in self.shares:
            counts.append(total * share // whole)
            total, whole = total - counts[-1], whole - share
        return counts


def _count(left: Places, share: int, whole: int) -> Places:
    """Returns how many of the first `left` examples belong to a dataset with this share."""
    full, rest = np.divmod(left, whole)  # keeps products within 64 bits
    found: Places = full * share + rest * share // whole
    return found


def _of_epochs(order: EpochOrder, places: Places, step: int) -> Places:
    """Returns the examples at places counted over all epochs; numbers grow by `step` per epoch."""
    epochs, rest = np.divmod(places, order.size)
    found = np.empty_like(places)
    for epoch in np.unique(epochs).tolist():
        rows = epochs == epoch
        found[rows] = epoch * step + order(epoch, rest[rows])
    return found


@dataclass(frozen=True)
class MixedSource:
    """The concatenated examples of several datasets, with their names for messages."""

    parts: tuple[IndexedExamples, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        first = _forms(self.parts[0].tree)
        for name, part in zip(self.names[1:], self.parts[1:], strict=True):
            other = _forms(part.tree)
            if first != other:
                differing = [one for one in {**first, **other} if first.get(one) != other.get(one)]
                raise PlanError(
                    f"{self.names[0]} and {name} cannot be mixed: their examples differ.",
                    *(
                        f"{one or 'The example'}: {_shown(first.get(one))} in the first, "
                        f"{_shown(other.get(one))} in the second"
                        for one in differing
                    ),
                    fix="choose common features with columns=[...], and an image_size",
                )

    @property
    def tree(self) -> Leaves:
        """The leaves of an example, nested like its columns."""
        tree: Leaves = self.parts[0].tree
        return tree

    @property
    def skipped(self) -> int:
        """The number of distinct examples skipped so far."""
        return sum(part.skipped for part in self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def columns(self, numbers: Places, epoch: int) -> Columns:  # noqa: ARG002 - each has its own
        """Returns the examples with these numbers, of whichever datasets, as columns."""
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


def _forms(tree: Leaves, path: str = "") -> dict[str, Leaf]:
    """Returns the leaves of a tree by path, without what does not concern decoded values."""
    if isinstance(tree, Leaf):
        return {path: replace(plain(tree), path=(), encoding="none", is_optional=False)}
    nodes = tree if isinstance(tree, Mapping) else {str(i): node for i, node in enumerate(tree)}
    return {
        name: leaf
        for key, node in nodes.items()
        for name, leaf in _forms(node, f"{path}/{key}".lstrip("/")).items()
    }


def _shown(leaf: Leaf | None) -> str:
    if leaf is None:
        return "nothing"
    labels = f" labelled {', '.join(leaf.labels)}" if leaf.labels else ""
    sequence = f" in sequences of {leaf.sequence}" if leaf.sequence else ""
    return f"{leaf.form} {leaf.dtype} of shape {leaf.shape}{sequence}{labels}"
