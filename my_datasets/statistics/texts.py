"""Statistics of texts, and vectorized hashes of them."""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from my_datasets.records.tf_example.columns import Bytes, Places
from my_datasets.statistics.distinct import Distinct, Hashes, Top, mixed
from my_datasets.statistics.distribution import Distribution
from my_datasets.statistics.numbers import frequent_values_entry, summary_of

# Longer texts, in bytes, are hashed one by one, which is just as fast for them.
_SHORT = 256
# Longer texts are not listed among the frequent ones.
_QUOTED = 64
_WORD = 8
_NOT_ASCII = np.uint64(0x8080808080808080)


@dataclass
class TextStatistics:
    """Statistics of texts, or of other bytes.

    Attributes:
      lengths: The lengths in characters, or in bytes for values that are not UTF-8.
      empty: The number of empty values.
      not_text: The number of values that are not UTF-8.
      distinct: The number of distinct values.
      top: The most frequent values of at most 64 bytes.
    """

    lengths: Distribution = field(default_factory=lambda: Distribution(whole=True))
    empty: int = 0
    not_text: int = 0
    distinct: Distinct = field(default_factory=Distinct)
    top: Top = field(default_factory=lambda: Top(is_of_texts=True))

    def add(self, data: Bytes, starts: Places, stops: Places) -> None:
        """Adds texts.

        Args:
          data: A buffer with the texts, followed by `PADDING` bytes.
          starts: The offset of each text; shape [n].
          stops: The end of each text; shape [n].
        """
        if not len(starts):
            return
        hashes, is_ascii = hashed(data, starts, stops)
        lengths = stops - starts
        for place in np.flatnonzero(~is_ascii).tolist():
            try:
                text = bytes(data[starts[place] : stops[place]]).decode()
                lengths[place] = len(text)
            except UnicodeDecodeError:
                self.not_text += 1
        self.lengths.add(lengths)
        self.empty += int((starts == stops).sum())
        self.distinct.add(hashes)
        short = np.flatnonzero(stops - starts <= _QUOTED)

        def value(place: int) -> str:
            one = short[place]
            return bytes(data[starts[one] : stops[one]]).decode(errors="backslashreplace")

        self.top.add(hashes[short], value)

    def merge(self, other: "TextStatistics") -> None:
        """Adds the statistics of the texts that follow these."""
        self.lengths.merge(other.lengths)
        self.empty += other.empty
        self.not_text += other.not_text
        self.distinct.merge(other.distinct)
        self.top.merge(other.top)

    def summary(self) -> dict[str, object]:
        """Returns the texts' entry in the manifest."""
        odd = {"empty": self.empty, "not_text": self.not_text}
        return {
            "values": self.lengths.count,
            **{name: count for name, count in odd.items() if count},
            "lengths": summary_of(self.lengths),
            **frequent_values_entry(self.distinct, self.top),
        }


def hashed(data: Bytes, starts: Places, stops: Places) -> tuple[Hashes, npt.NDArray[np.bool_]]:
    """Returns a hash of each text, and whether it is all ASCII; each of shape [n].

    Args:
      data: A buffer with the texts, followed by `PADDING` bytes.
      starts: The offset of each text; shape [n].
      stops: The end of each text; shape [n].
    """
    lengths = stops - starts
    words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
    hashes = mixed(lengths.astype(np.uint64))
    seen = np.zeros(len(starts), np.uint64)
    left = np.flatnonzero((lengths > 0) & (lengths <= _SHORT))
    at = 0
    while len(left):
        found = words[starts[left] + at]
        over = np.maximum(0, _WORD - (lengths[left] - at)).astype(np.uint64) * np.uint64(8)
        found = found & (np.uint64(0xFFFFFFFFFFFFFFFF) >> over)
        seen[left] |= found
        hashes[left] = mixed(hashes[left] ^ found)
        at += _WORD
        left = left[lengths[left] > at]
    is_ascii = (seen & _NOT_ASCII) == 0
    for place in np.flatnonzero(lengths > _SHORT).tolist():
        text = bytes(data[starts[place] : stops[place]])
        is_ascii[place] = text.isascii()
        hashes[place] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return hashes, is_ascii
