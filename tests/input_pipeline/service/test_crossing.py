"""The one function that can be called in a worker, and what of TensorFlow it stands on."""

import ast
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import script_ops

from my_datasets.input_pipeline.service import work_graph


def test_the_registry_of_tensorflow_is_as_we_take_it():
    assert isinstance(script_ops._py_funcs, script_ops.FuncRegistry)
    assert script_ops._py_funcs._funcs is not None
    assert script_ops._py_funcs.get(work_graph.TOKEN + "?") is None


def test_a_call_is_answered_by_whoever_registered(monkeypatch):
    monkeypatch.setattr(work_graph, "_registered", [])  # afterwards this process answers no more
    asked = []

    def answer(text, number):
        asked.append((text, int(number)))
        return [np.int64(number + 1), np.array([b"x"], object)]

    def call(number):
        first, second = work_graph.call_function(
            [tf.constant("request"), number], [tf.int64, tf.string]
        )
        return first, second

    dataset = tf.data.Dataset.range(3).map(call)
    work_graph.register_function(answer)
    assert [int(first) for first, _ in dataset] == [1, 2, 3]
    assert sorted(asked) == [(b"request", 0), (b"request", 1), (b"request", 2)]


def test_only_these_modules_use_protected_names(root):
    package = root / "my_datasets/input_pipeline/service"
    for source in sorted(package.glob("*.py")):
        names = {
            node.attr for node in ast.walk(ast.parse(Path(source).read_text("utf-8")))
            if isinstance(node, ast.Attribute) and node.attr in ("_py_funcs", "_funcs")
        }  # fmt: skip
        assert bool(names) == (source.name == "work_graph.py")
