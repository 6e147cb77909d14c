"""`tf.Example` bytes taken apart: the reverse of `my_datasets.records.tf_example.encoding`.

Records that look alike are read in the fewest steps; those that have the entries of the first one
in its order side by side, in some more; those that have them in any order in more again; and those
in forms that no common writer gives one by one.
"""

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np

from my_datasets.records.tf_example import reference_parser
from my_datasets.records.tf_example.columns import Bytes, Column, Places, UncommonError
from my_datasets.records.tf_example.encoding import Kind
from my_datasets.records.tf_example.uniform_parser import Alike
from my_datasets.records.tf_example.vectorized_parser import LONGEST_KEY, SideBySide, fingerprint


class Parser:
    """Takes records with known keys apart."""

    def __init__(self, keys: Sequence[str], kinds: Mapping[str, Kind] | None = None) -> None:
        """Prepares for some keys.

        Args:
          keys: The keys that are wanted; others are passed over.
          kinds: Which list should hold the values of each key, where that is known: where records
            differ in it, the one that has another is told.
        """
        self._kinds = kinds or {}
        self._keys = [key.encode() for key in keys]
        self._names = list(keys)
        # Two keys that look the same from afar would have to be compared byte by byte.
        prints = [fingerprint(key) for key in self._keys]
        self._is_plain = len(set(prints)) == len(prints) and all(
            len(key) <= LONGEST_KEY for key in self._keys
        )
        self._alike = Alike(self._keys)
        self._order = np.argsort(np.array(prints, np.uint64))
        self._prints = np.array(prints, np.uint64)[self._order]

    def __call__(self, data: Bytes, starts: Places, stops: Places) -> dict[str, Column]:
        """Returns the columns of some records.

        Args:
          data: A buffer that holds them, with `PADDING` bytes behind.
          starts: Where each begins; shape [n].
          stops: The position after each.

        Raises:
          UnreadableRecordError: One of them is no `tf.Example`.
        """
        if not len(starts):
            return {name: Column(None, np.zeros(0, np.int64)) for name in self._names}
        with contextlib.suppress(UncommonError):
            return self._named(self._alike.columns(data, starts, stops))
        if self._is_plain:
            reader = SideBySide(data, self._keys, self._prints, self._order)
            for read in (reader.columns_as_in_the_first, reader.columns):
                # A length that is damaged may lead beyond the buffer.
                with contextlib.suppress(UncommonError, IndexError):
                    return self._named(read(starts, stops))
        return reference_parser.columns_of(data, self._names, starts, stops, self._kinds)

    def _named(self, columns: Sequence[Column]) -> dict[str, Column]:
        return dict(zip(self._names, columns, strict=True))
