"""Parses `tf.Example` bytes: the inverse of `my_datasets.records.tf_example.encoding`.

Tries the fastest parser first: for records of identical layout, then for records with the entries
of the first one in its order, then for entries in any order, and finally one that reads any valid
form, record by record.
"""

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np

from my_datasets.records.tf_example import reference_parser
from my_datasets.records.tf_example.columns import Bytes, Column, Places, UncommonError
from my_datasets.records.tf_example.encoding import Kind
from my_datasets.records.tf_example.uniform_parser import UniformParser
from my_datasets.records.tf_example.vectorized_parser import (
    LONGEST_KEY,
    VectorizedParser,
    fingerprint,
)


class Parser:
    """Parses records with known keys into columns."""

    def __init__(self, keys: Sequence[str], kinds: Mapping[str, Kind] | None = None) -> None:
        """Prepares to parse some keys.

        Args:
          keys: The keys to read; others are skipped.
          kinds: The expected kind of list of each key, where known. If records disagree, the error
            names the one of another kind.
        """
        self._kinds = kinds or {}
        self._keys = [key.encode() for key in keys]
        self._names = list(keys)
        # Keys with the same fingerprint would have to be compared byte by byte.
        prints = [fingerprint(key) for key in self._keys]
        self._is_plain = len(set(prints)) == len(prints) and all(
            len(key) <= LONGEST_KEY for key in self._keys
        )
        self._alike = UniformParser(self._keys)
        self._order = np.argsort(np.array(prints, np.uint64))
        self._prints = np.array(prints, np.uint64)[self._order]

    def __call__(self, data: Bytes, starts: Places, stops: Places) -> dict[str, Column]:
        """Returns the columns of some records.

        Args:
          data: A buffer with the records, followed by `PADDING` bytes.
          starts: The offset of each record; shape [n].
          stops: The end of each record; shape [n].

        Raises:
          UnreadableRecordError: A record is not a `tf.Example`.
        """
        if not len(starts):
            return {name: Column(None, np.zeros(0, np.int64)) for name in self._names}
        with contextlib.suppress(UncommonError):
            return self._named(self._alike.columns(data, starts, stops))
        if self._is_plain:
            reader = VectorizedParser(data, self._keys, self._prints, self._order)
            for read in (reader.columns_as_in_the_first, reader.columns):
                # A damaged length may point beyond the buffer.
                with contextlib.suppress(UncommonError, IndexError):
                    return self._named(read(starts, stops))
        return reference_parser.columns_of(data, self._names, starts, stops, self._kinds)

    def _named(self, columns: Sequence[Column]) -> dict[str, Column]:
        return dict(zip(self._names, columns, strict=True))
