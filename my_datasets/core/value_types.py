"""Types of values that any layer passes on: parsed JSON and NumPy arrays."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy.typing as npt

# What `json.loads` returns.
Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

# A JSON object, such as the statistics in a manifest, whose readers know its members.
JsonObject: TypeAlias = Mapping[str, Any]

# An array of any dtype. Where the dtype is known, name it: `npt.NDArray[np.int64]`.
Array: TypeAlias = npt.NDArray[Any]
