"""The one Python function that the tf.data service can call in its workers.

The service sends graphs to its workers. A Python call in a graph is an operation with the
function's token, which is looked up in the process that executes it. TensorFlow generates tokens
for the process that builds the graph; our workers register one function under a fixed token. Other
Python functions have no such token, and cannot be sent to workers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# TensorFlow's function registry has no public API; test_crossing.py fails if it changes.
from tensorflow.python.ops import script_ops

# The number is the version of the request format: workers of another version use another token.
TOKEN = "my_datasets.piece.2"  # noqa: S105
CALLS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})

# The registry keeps weak references only.
_kept: list[Callable[..., Any]] = []


def register(function: Callable[..., Any]) -> None:
    """Registers the function that answers calls in this process.

    Args:
      function: Takes NumPy arrays and returns a list of NumPy arrays.
    """
    _kept[:] = [function]
    script_ops._py_funcs._funcs[TOKEN] = function


def call(arguments: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Adds a call to the graph and returns its tensors; the executing process has the function.

    Args:
      arguments: Tensors.
      types: The types of the returned tensors.
    """
    return list(tf.raw_ops.PyFuncStateless(input=arguments, token=TOKEN, Tout=types))


def is_unknown_there(message: str) -> bool:
    """Returns whether an error means that a worker is not ours, or is of another version."""
    return "Could not find callback" in message
