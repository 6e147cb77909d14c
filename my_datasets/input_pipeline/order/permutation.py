"""The order of an epoch's examples, a function of the seed, the epoch and the position alone.

A shuffled epoch is a permutation that is computed, not stored: a Feistel network (Luby and Rackoff,
"How to construct pseudorandom permutations from pseudorandom functions", 1988) on numbers of just
enough bits, with cycle walking (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002)
past the numbers beyond the last example. It can begin anywhere at once, for any number of hosts,
workers or batches. Halves of few bits mix poorly, so small datasets are sorted by random numbers
instead.
"""

import functools
import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

# Version 1 took the round keys of all epochs from one sequence, so each epoch had those of the
# previous one, shifted by one. Saved positions of version 1 can still be resumed.
ORDER_VERSION = 2

Places = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

# Rounds of the network: four suffice for pseudorandomness; this is twice as many.
_ROUNDS = 8
# Up to this many examples are sorted, which takes about 10 ms and 1 MB per epoch.
_SORTED = 1 << 17
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


class EpochOrder(Protocol):
    """The order of the examples of all epochs."""

    @property
    def size(self) -> int:
        """The number of examples in an epoch."""

    def __call__(self, epoch: int, places: Places) -> Places:
        """Returns the numbers of the examples at these places of an epoch; int64, shape [n]."""


@dataclass(frozen=True)
class Order:
    """The order of the examples of all epochs.

    Attributes:
      size: The number of examples.
      seed: The seed; None for the order of storage.
      version: The algorithm, as recorded in saved positions; see `ORDER_VERSION`.
    """

    size: int
    seed: int | None = None
    version: int = ORDER_VERSION

    def __call__(self, epoch: int, places: Places) -> Places:
        """Returns the storage numbers of the examples at these places of an epoch, from 0.

        `places` are below `size`; both are int64, shape [n].
        """
        if self.seed is None or self.size < 2:
            return places
        if self.size <= _SORTED:
            return _sorted(self.size, self.seed, epoch)[places]
        keys = _round_keys(self.seed, epoch, self.version)
        bits = (self.size - 1).bit_length()
        found = _permuted(places.astype(np.uint64), bits, keys)
        outside = np.flatnonzero(found >= self.size)
        while len(outside):
            found[outside] = _permuted(found[outside], bits, keys)
            outside = outside[found[outside] >= self.size]
        return found.astype(np.int64)


@dataclass(frozen=True)
class WindowOrder:
    """An order that reads few shards at a time.

    The shards are shuffled in each epoch, and so are the examples of each window of shards.

    Attributes:
      runs: The number of examples in each shard, in the order of storage.
      window: The number of shards in a window.
      seed: The seed; None for the order of storage.
      announce: Called when a window begins, with the runs of that window and the next one.
    """

    runs: tuple[int, ...]
    window: int
    seed: int | None
    announce: Callable[[list[int]], None] = lambda _: None
    version: int = ORDER_VERSION

    @functools.cached_property
    def size(self) -> int:
        """The number of examples in an epoch."""
        return sum(self.runs)

    def __call__(self, epoch: int, places: Places) -> Places:
        """Returns the numbers of the examples at these places; see `EpochOrder`."""
        in_turn = Order(len(self.runs), self.seed, self.version)
        shards = in_turn(epoch, np.arange(len(self.runs)))
        sizes = np.array(self.runs, np.int64)
        firsts = (np.cumsum(sizes) - sizes)[shards]
        ends = np.cumsum(sizes[shards])
        windows = ends[self.window - 1 :: self.window]
        if len(self.runs) % self.window:
            windows = np.append(windows, ends[-1])
        which = np.searchsorted(windows, places, side="right")
        found = np.empty_like(places)
        for window in np.unique(which).tolist():
            begin = int(windows[window - 1]) if window else 0
            order = Order(int(windows[window]) - begin, self.seed, self.version)
            rows = which == window
            inside = begin + order(epoch * len(windows) + window, places[rows] - begin)
            shard = np.searchsorted(ends, inside, side="right")
            found[rows] = inside - (ends - sizes[shards])[shard] + firsts[shard]
            first = window * self.window
            self.announce(shards[first : first + 2 * self.window].tolist())
        return found


def uniform(seed: int, epoch: int, examples: Places, count: int) -> npt.NDArray[np.float32]:
    """Returns `count` pseudorandom numbers in [0, 1) per example, which differ in each epoch.

    They are float32, of shape [n, count]; `examples` has shape [n].
    """
    found = np.empty((len(examples), count), np.float32)
    for i in range(count):
        (key, *_) = _keys(_mix((seed + 1) & _WORD) ^ _mix(i + 1), epoch)
        words = _hashed(examples.astype(np.uint64), key)
        found[:, i] = (words >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)
    return found


@functools.lru_cache(maxsize=8)
def _sorted(size: int, seed: int, epoch: int) -> Places:
    (key, *_) = _keys(seed, epoch)
    return np.argsort(_hashed(np.arange(size, dtype=np.uint64), key), kind="stable")


def _round_keys(seed: int, epoch: int, version: int) -> list[int]:
    """Returns a key for each round: 64 bits of a keyed hash of seed and epoch."""
    if version == 1:
        return _keys(seed, epoch)
    hashed = hashlib.blake2b(
        int(epoch).to_bytes(16, "little"), digest_size=8 * _ROUNDS,
        key=(seed & _WORD).to_bytes(8, "little"), person=b"my_datasets",
    )  # fmt: skip
    return list(struct.unpack(f"<{_ROUNDS}Q", hashed.digest()))


def _keys(seed: int, epoch: int) -> list[int]:
    """Returns numbers of SplitMix64, seeded with the seed and the epoch.

    Only the first one is unique to this epoch: the next are the first ones of the next epochs.
    """
    state = (_mix(seed & _WORD) + (epoch + 1) * _GOLDEN) & _WORD
    return [_mix((state + i * _GOLDEN) & _WORD) for i in range(1, _ROUNDS + 1)]


def _mix(number: int) -> int:
    # The finaliser of SplitMix64 (Steele, Lea, Flood 2014, figure 16), variant 13 of Stafford.
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _WORD
    return number ^ (number >> 31)


def _permuted(numbers: Words, bits: int, keys: list[int]) -> Words:
    """Applies a permutation of the numbers of this many bits."""
    low_bits = bits // 2
    high_bits = bits - low_bits
    low = numbers & np.uint64((1 << low_bits) - 1)
    high = numbers >> np.uint64(low_bits)
    for i, key in enumerate(keys):
        # With an odd number of bits the halves have different lengths; each keeps its own.
        if i % 2:
            low ^= _hashed(high, key) >> np.uint64(64 - low_bits)
        else:
            high ^= _hashed(low, key) >> np.uint64(64 - high_bits)
    return high << np.uint64(low_bits) | low


def _hashed(numbers: Words, key: int) -> Words:
    """Returns 64 well-mixed bits of each number (SplitMix64's finaliser)."""
    found = (numbers + np.uint64(key)) * np.uint64(_GOLDEN)
    found ^= found >> np.uint64(32)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(29)
    found *= np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(32))
