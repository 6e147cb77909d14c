"""From messages to columns, with those that cannot be decoded told apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.building.units import Misfit
from my_datasets.input_pipeline import trees
from my_datasets.input_pipeline.decoding import Decoder, MisfitError
from my_datasets.streaming.payloads import Payload

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Misfitting:
    """A message that cannot be decoded.

    Attributes:
      row: Which of those that were given.
      feature: The feature it does not fit; empty for the whole message.
      expected: What was declared.
      found: What is there.
    """

    row: int
    feature: str
    expected: str
    found: str


@dataclass(frozen=True)
class Decoded:
    """Messages, decoded.

    Attributes:
      columns: Their values: arrays of shape [n, ...] and `Ragged`s, nested as the features are.
      rows: Which of the messages they are, in order; shape [n].
      misfitting: The others.
    """

    columns: Any
    rows: Rows
    misfitting: tuple[Misfitting, ...] = ()


@dataclass(frozen=True)
class Decoding:
    """Decodes messages, many at a time.

    Attributes:
      payload: Makes records of messages.
      decoder: Makes values of records.
    """

    payload: Payload
    decoder: Decoder

    def __call__(self, values: Sequence[bytes | None]) -> Decoded:
        """Returns the values of messages; those that are None are passed over."""
        there = [value for value in values if value is not None]
        if len(there) == len(values):
            return self._all(there)
        present = np.array([i for i, value in enumerate(values) if value is not None], np.int64)
        found = self._all(there)
        misfitting = [replace(one, row=int(present[one.row])) for one in found.misfitting]
        return Decoded(found.columns, present[found.rows], tuple(misfitting))

    def _all(self, values: Sequence[bytes]) -> Decoded:
        misfitting: list[Misfitting] = []
        parts = self._parts(values, 0, misfitting)
        if len(parts) == 1:
            return Decoded(*parts[0], tuple(misfitting))
        if not parts:
            return Decoded(self.nothing, np.zeros(0, np.int64), tuple(misfitting))
        rows = np.concatenate([rows for _, rows in parts])
        places = np.split(np.arange(len(rows)), np.cumsum([len(r) for _, r in parts])[:-1])
        columns = trees.merged([columns for columns, _ in parts], places)
        return Decoded(columns, rows, tuple(misfitting))

    @property
    def nothing(self) -> Any:
        """The columns of no messages, which have the types of all others."""
        return self._decoded([])

    def _decoded(self, values: Sequence[bytes]) -> Any:
        return self.decoder(self.payload.records(values))

    def _parts(
        self, values: Sequence[bytes], first: int, misfitting: list[Misfitting]
    ) -> list[tuple[Any, Rows]]:
        """Returns columns and their rows; halves what cannot be decoded as a whole.

        Which record is at fault is not taken from the error: of two that do not go together it may
        name the one that is right.
        """
        try:
            return [(self._decoded(values), np.arange(first, first + len(values)))]
        except (Misfit, MisfitError) as error:
            if len(values) == 1:
                found = error.found
                if error.__cause__ is not None and isinstance(error, Misfit):
                    found = f"{found} ({error.__cause__})" if found else str(error.__cause__)
                misfitting.append(Misfitting(first, error.feature, error.expected, found))
                return []
        half = len(values) // 2
        return [
            *self._parts(values[:half], first, misfitting),
            *self._parts(values[half:], first + half, misfitting),
        ]
