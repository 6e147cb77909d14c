"""Types of parsed JSON."""

from collections.abc import Mapping
from typing import Any, TypeAlias

# What `json.loads` returns.
Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

# A JSON object, such as the statistics in a manifest, whose readers know its members.
JsonObject: TypeAlias = Mapping[str, Any]
