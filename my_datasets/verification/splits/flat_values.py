"""The values of one feature in some examples, those within sequences one by one."""

from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.input_pipeline.decode.ragged import Ragged
from my_datasets.metadata.features import Leaf

Rows = npt.NDArray[np.int64]


def is_flat(leaf: Leaf) -> bool:
    """Returns whether `flat` knows the feature: single values, or sequences of them."""
    return len(leaf.sequence) < 2


def flat(leaf: Leaf, column: Any) -> tuple[Any, Rows]:
    """Returns the values of a feature, and which example each is of.

    Args:
      leaf: The feature.
      column: Its values as they are decoded.

    Returns:
      What gives the values in their order, and the numbers of their examples; shape [values].
    """
    if isinstance(column, Ragged):
        return column.values, np.repeat(np.arange(len(column)), column.lengths[0])
    if not leaf.sequence:
        return column, np.arange(len(column))
    each = column.shape[1]
    return column.reshape(-1, *column.shape[2:]), np.repeat(np.arange(len(column)), each)
