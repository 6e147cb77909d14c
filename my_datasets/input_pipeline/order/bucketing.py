"""An order in which examples of about the same length come together.

Of a window of an epoch's examples those of similar length are grouped; the groups come in an order
that looks random. It is computed as other orders are, so that any host can begin anywhere.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from my_datasets.input_pipeline.order.permutation import ORDER_VERSION, EpochOrder, Order, Places

# Windows that are kept sorted: workers are seldom more than one apart.
_KEPT = 4


@dataclass(frozen=True)
class LengthOrder:
    """An order by length, within windows.

    Attributes:
      order: The order before.
      lengths: How long each example is; int64, shape [examples].
      window: How many examples are sorted together.
      group: How many of similar length stay together.
      seed: Makes another order of the groups.
      version: As of `Order`.
    """

    order: EpochOrder
    lengths: npt.NDArray[np.int64]
    window: int
    group: int
    seed: int
    version: int = ORDER_VERSION
    _sorted: dict[tuple[int, int], Places] = field(default_factory=dict, repr=False, compare=False)

    @property
    def size(self) -> int:
        """How many examples an epoch has."""
        return self.order.size

    def __call__(self, epoch: int, places: Places) -> Places:
        """Returns the numbers of the examples at some places of an epoch; see `EpochOrder`."""
        windows = places // self.window
        found = np.empty_like(places)
        for window in np.unique(windows).tolist():
            rows = windows == window
            found[rows] = self._window(epoch, window)[places[rows] - window * self.window]
        return found

    def _window(self, epoch: int, window: int) -> Places:
        found = self._sorted.get((epoch, window))
        if found is None:
            begin = window * self.window
            places = np.arange(begin, min(begin + self.window, self.size))
            numbers = self.order(epoch, places)
            by_length = numbers[np.argsort(self.lengths[numbers], kind="stable")]
            full = len(by_length) // self.group
            order = Order(full, self.seed, self.version)
            key = epoch * -(-self.size // self.window) + window
            # Those that are too few for a group come last, and may be left out: of any length.
            rest = len(by_length) - full * self.group
            last = Order(full + 1, self.seed + 1, self.version)
            at = int(last(key, np.zeros(1, np.int64))[0]) * self.group
            whole = np.delete(by_length, np.s_[at : at + rest])
            groups = whole.reshape(full, self.group)[order(key, np.arange(full))]
            found = np.concatenate([groups.reshape(-1), by_length[at : at + rest]])
            for old in list(self._sorted)[: 1 - _KEPT]:
                self._sorted.pop(old, None)
            self._sorted[epoch, window] = found
        return found
