"""Skips examples whose images cannot be decoded, or whose records are damaged, and counts them."""

from typing import Any

import numpy as np

from my_datasets.core.logs import get_logger
from my_datasets.errors import CorruptShardError, ExampleError
from my_datasets.input_pipeline.decode.decoder import MisfitError, UndecodableImagesError
from my_datasets.input_pipeline.order.permutation import Places
from my_datasets.input_pipeline.read.source import ExampleSource
from my_datasets.records.random_access import DamagedRecordsError

_log = get_logger(__name__)


class SkippingSource:
    """Examples, of which one that cannot be decoded gives its place to the next that can.

    The next is that in the order of storage. So batches keep their sizes, all hosts take as many
    steps, and what comes does not depend on who asks.
    """

    def __init__(self, source: ExampleSource, *, warns: bool = True) -> None:
        """Takes the examples, and whether to say which of them are skipped."""
        self._source = source
        self._warns = warns
        self._skipped: dict[int, None] = {}
        self._nothing: ExampleError | CorruptShardError | None = None

    @property
    def tree(self) -> Any:
        """The leaves of an example, nested as its values are."""
        return self._source.tree

    @property
    def skipped(self) -> int:
        """How many different examples were passed over so far."""
        return len(self._skipped)

    def __len__(self) -> int:
        return len(self._source)

    def columns(self, numbers: Places, epoch: int = 0) -> Any:
        """Returns examples as columns.

        Raises:
          ExampleError: None can be decoded, or one does not fit the features in another way.
          CorruptShardError: All records are damaged, or a shard is in another way: cut off, or not
            that of its index.
        """
        while True:
            if self._nothing is not None:
                raise self._nothing
            chosen = self._standing_in(numbers)
            try:
                return self._source.decoded(chosen, epoch)
            except DamagedRecordsError as error:
                self._note(chosen[list(error.rows)], list(error.messages), error)
            except UndecodableImagesError as error:
                explained = [
                    self._source.explained(error, chosen, i) for i in range(len(error.rows))
                ]
                self._note(chosen[list(error.rows)], list(map(str, explained)), explained[0])
            except MisfitError as error:
                raise self._source.explained(error, chosen) from error

    def _note(
        self, numbers: Places, messages: list[str], error: ExampleError | CorruptShardError
    ) -> None:
        for number, message in zip(numbers.tolist(), messages, strict=True):
            if number not in self._skipped:
                self._skipped[number] = None
                if self._warns:
                    _log.warning("skipped, %d so far: %s", len(self._skipped), message)
        if len(self._skipped) == len(self):
            self._nothing = error

    def _standing_in(self, numbers: Places) -> Places:
        """Returns the examples that come in place of those asked for."""
        if not self._skipped:
            return numbers
        bad = np.fromiter(self._skipped.copy(), np.int64)
        found = numbers.copy()
        while len(rows := np.flatnonzero(np.isin(found, bad))):
            found[rows] = (found[rows] + 1) % len(self)
        return found
