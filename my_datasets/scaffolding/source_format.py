"""Renders Python expressions as formatters do, with lines of at most 100 characters."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_WIDTH = 100


@dataclass(frozen=True)
class Call:
    """A function call.

    Attributes:
      function: The function's name.
      arguments: The positional arguments: literals, calls or `Name`s.
      named: The keyword arguments.
    """

    function: str
    arguments: Sequence[Any] = ()
    named: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Name:
    """An expression that is written verbatim."""

    text: str


def assigned(indent: int, before: str, value: Any, behind: str = "") -> str:
    """Returns one or more lines with an expression.

    Args:
      indent: The number of leading spaces.
      before: The text before the expression.
      value: A literal, a `Call`, a `Name`, or lists, tuples and dicts of them.
      behind: The text after the expression.
    """
    text = " " * indent + before
    if len(text) + len(_flat(value)) + len(behind) <= _WIDTH:
        return f"{text}{_flat(value)}{behind}\n"
    return f"{text}{_tall(value, indent)}{behind}\n"


def _flat(value: Any) -> str:
    if isinstance(value, Name):
        return value.text
    if isinstance(value, Call):
        return f"{value.function}({', '.join(_flat_items(value))})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flat(k)}: {_flat(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_flat, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flat, value)) + "]"
    if not isinstance(value, str):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False)
    # Formatters use the quotation marks that need fewer backslashes.
    needs_only_them = '"' in value and "'" not in value and text.count("\\") == value.count('"')
    return f"'{value}'" if needs_only_them else text


def _flat_items(call: Call) -> list[str]:
    named = [f"{name}={_flat(value)}" for name, value in (call.named or {}).items()]
    return [*map(_flat, call.arguments), *named]


def _tall(value: Any, indent: int) -> str:
    """Returns an expression with one line per part."""
    inner = indent + 4
    if isinstance(value, Call):
        opening, closing = f"{value.function}(", ")"
        parts = [("", item) for item in value.arguments]
        parts += [(f"{name}=", item) for name, item in (value.named or {}).items()]
    elif isinstance(value, Mapping):
        opening, closing = "{", "}"
        parts = [(f"{_flat(key)}: ", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        opening, closing = ("[", "]") if isinstance(value, list) else ("(", ")")
        parts = [("", item) for item in value]
    else:
        return _flat(value)  # a string that is too long is not split
    lines = "".join(assigned(inner, before, item, ",") for before, item in parts)
    return f"{opening}\n{lines}{' ' * indent}{closing}"
