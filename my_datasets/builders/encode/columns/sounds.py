"""Audio: arrays of samples, or files that TFDS decodes itself."""

from typing import Any

import numpy as np

from my_datasets.builders.encode.columns.column import ColumnEncoder
from my_datasets.builders.encode.columns.numbers import NumberEncoder


class Sounds(NumberEncoder):
    """Encodes audio: arrays of samples, or files that TFDS decodes itself."""

    may_read_files = True

    def own(self, value: Any) -> Any:
        # Anything else is a file or its path, which TFDS reads now because the file may be removed
        # soon.
        return value.copy() if type(value) is np.ndarray else ColumnEncoder.own(self, value)
