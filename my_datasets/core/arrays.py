"""The type of NumPy arrays whose dtype is not known."""

from typing import Any, TypeAlias

import numpy.typing as npt

# An array of any dtype. Where the dtype is known, name it: `npt.NDArray[np.int64]`.
Array: TypeAlias = npt.NDArray[Any]
