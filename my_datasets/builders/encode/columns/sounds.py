"""Recordings: arrays of samples, or what TFDS decodes by itself."""

from typing import Any

import numpy as np

from my_datasets.builders.encode.columns.column import Column
from my_datasets.builders.encode.columns.numbers import Numbers


class Sounds(Numbers):
    """Recordings: arrays of samples, or what TFDS decodes by itself."""

    may_read_files = True

    def own(self, value: Any) -> Any:
        # Anything else is a file, or its name, which TFDS reads now: it may be about to go.
        return value.copy() if type(value) is np.ndarray else Column.own(self, value)
