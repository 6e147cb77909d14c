"""Passes over examples whose images cannot be decoded, and counts them."""

import logging
from typing import Any

import numpy as np

from my_datasets.errors import ExampleError
from my_datasets.input_pipeline.decoding import MisfitError, UndecodableImagesError
from my_datasets.input_pipeline.order import Places
from my_datasets.input_pipeline.source import ExampleSource

_log = logging.getLogger(__name__)


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
        self._nothing: ExampleError | None = None

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
          ExampleError: None can be decoded, or a record is damaged in another way.
        """
        while True:
            if self._nothing is not None:
                raise self._nothing
            chosen = self._standing_in(numbers)
            try:
                return self._source.decoded(chosen, epoch)
            except UndecodableImagesError as error:
                self._note(error, chosen)
            except MisfitError as error:
                raise self._source.explained(error, chosen) from error

    def _note(self, error: UndecodableImagesError, chosen: Places) -> None:
        for which, row in enumerate(error.rows):
            number = int(chosen[row])
            if number not in self._skipped:
                self._skipped[number] = None
                if self._warns:
                    said = self._source.explained(error, chosen, which)
                    _log.warning("skipped, %d so far: %s", len(self._skipped), said)
        if len(self._skipped) == len(self):
            self._nothing = self._source.explained(error, chosen)
            raise self._nothing from error

    def _standing_in(self, numbers: Places) -> Places:
        """Returns the examples that come in place of those asked for."""
        if not self._skipped:
            return numbers
        bad = np.fromiter(self._skipped.copy(), np.int64)
        found = numbers.copy()
        while len(rows := np.flatnonzero(np.isin(found, bad))):
            found[rows] = (found[rows] + 1) % len(self)
        return found
