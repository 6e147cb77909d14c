"""Decodes messages into columns, and reports those that cannot be decoded."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from my_datasets.building.units import InvalidValue
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.decoder import Decoder, FeatureMismatchError
from my_datasets.kafka.decode.payloads import Payload
from my_datasets.kafka.decode.values import Columns, MessageValues

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class UndecodableMessage:
    """A message that cannot be decoded: its index among those given, and why."""

    row: int
    feature: str
    expected: str
    found: str


@dataclass(frozen=True)
class Decoded:
    """Decoded messages.

    Attributes:
      columns: Their values: arrays of shape [n, ...] and `Ragged`s, nested like the features.
      rows: The indices of the decoded messages, in order; shape [n].
      misfitting: The messages that cannot be decoded.
    """

    columns: Columns
    rows: Rows
    misfitting: tuple[UndecodableMessage, ...] = ()


@dataclass(frozen=True)
class Decoding:
    """Decodes many messages at a time: converts them to records, and those to columns."""

    payload: Payload
    decoder: Decoder

    def __call__(self, values: MessageValues) -> Decoded:
        """Decodes messages; skips those without a value."""
        if values.are_there.all():
            return self._all(values)
        present = np.flatnonzero(values.are_there)
        found = self._all(values[present])
        misfitting = [replace(one, row=int(present[one.row])) for one in found.misfitting]
        return Decoded(found.columns, present[found.rows], tuple(misfitting))

    def _all(self, values: MessageValues) -> Decoded:
        misfitting: list[UndecodableMessage] = []
        parts = self._parts(values, 0, misfitting)
        if not parts:
            return Decoded(self.nothing, np.zeros(0, np.int64), tuple(misfitting))
        rows = np.concatenate([rows for _, rows in parts])
        columns = pytree.concatenated([columns for columns, _ in parts])
        return Decoded(columns, rows, tuple(misfitting))

    @property
    def nothing(self) -> Columns:
        """Empty columns of the same types as all others."""
        return self._decoded(MessageValues.of([]))

    def _decoded(self, values: MessageValues) -> Columns:
        found: Columns = self.decoder(self.payload.records(values))
        return found

    def _parts(
        self, values: MessageValues, first: int, misfitting: list[UndecodableMessage]
    ) -> list[tuple[Columns, Rows]]:
        """Returns columns and their rows; halves a batch that cannot be decoded, and retries.

        The error does not reliably name the record at fault: if two records are inconsistent, it
        may name the valid one.
        """
        try:
            return [(self._decoded(values), np.arange(first, first + len(values)))]
        except (InvalidValue, FeatureMismatchError) as error:
            if len(values) == 1:
                found = error.found
                if error.__cause__ is not None and isinstance(error, InvalidValue):
                    found = f"{found} ({error.__cause__})" if found else str(error.__cause__)
                misfitting.append(UndecodableMessage(first, error.feature, error.expected, found))
                return []
        half = len(values) // 2
        return [
            *self._parts(values[:half], first, misfitting),
            *self._parts(values[half:], first + half, misfitting),
        ]
