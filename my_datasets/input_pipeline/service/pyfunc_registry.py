"""The one function of Python that tf.data service can call in its workers.

The service sends graphs to its workers, and a call of Python in a graph is an operation with the
name of a function, its token, which is looked up in the process that executes it. TensorFlow gives
out tokens by itself, for the process that builds the graph; workers of ours know one function by a
token that all agree upon. Functions of anybody else have no such token, and cannot cross.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# TensorFlow's registry of functions has no public door; test_crossing.py fails if it changes.
from tensorflow.python.ops import script_ops

# The number is that of the form of requests: workers of another version know another token.
TOKEN = "my_datasets.piece.2"  # noqa: S105
CALLS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})

# The registry has weak references only.
_kept: list[Callable[..., Any]] = []


def register(function: Callable[..., Any]) -> None:
    """Makes this process answer calls.

    Args:
      function: Takes NumPy arrays, and returns a list of some.
    """
    _kept[:] = [function]
    script_ops._py_funcs._funcs[TOKEN] = function


def call(arguments: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Returns the tensors of a call, in a graph; the process that executes it has the function.

    Args:
      arguments: Tensors.
      types: Of what is returned.
    """
    return list(tf.raw_ops.PyFuncStateless(input=arguments, token=TOKEN, Tout=types))


def is_unknown_there(message: str) -> bool:
    """Returns whether an error says that a worker is none of ours, or of another version."""
    return "Could not find callback" in message
