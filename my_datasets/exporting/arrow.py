"""Converts examples to Arrow tables with the metadata of Hugging Face's `datasets`.

Image files stay as they are: `datasets` shows them as images, and other readers of Parquet get
their bytes. Class labels are numbers; the schema has their names.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from my_datasets.core.arrays import Array
from my_datasets.errors import FeatureError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.metadata.features import Leaf
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example.parsing import Parser

# The name of an example's only value.
ALONE = "value"
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


class Columns:
    """Converts records to tables.

    Attributes:
      tree: The leaves of an example, nested like the example.
      binary: The names of features whose bytes are not text.
    """

    def __init__(self, tree: Any, binary: frozenset[str] = frozenset()) -> None:
        self.tree = tree
        self.binary = binary
        is_dict = isinstance(tree, Mapping)
        self._whole = _filled(tree) if is_dict else {ALONE: tree}
        optional = [leaf.name for leaf in pytree.columns_of(tree) if leaf.is_optional]
        self._decoder = Decoder(pytree.map_columns(_as_file, self._whole if is_dict else tree))
        self._optional = Parser(optional) if optional else None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the tables."""
        features = {name: _noted(node, self.binary) for name, node in self._whole.items()}
        noted = json.dumps({"info": {"features": features}}, sort_keys=True)
        fields = [(name, _type(node, self.binary)) for name, node in self._whole.items()]
        return pa.schema(fields, metadata={"huggingface": noted})

    def table(self, batch: RecordBatch) -> pa.Table:
        """Converts records to a table.

        Raises:
          FeatureMismatchError: A record does not match the features.
          FeatureError: A value should be text, but is not UTF-8.
        """
        values = self._decoder(batch)
        values = values if isinstance(values, Mapping) else {ALONE: values}
        parser = self._optional
        given = parser(batch.data, batch.starts, batch.stops) if parser else {}
        missing = {name: column.counts == 0 for name, column in given.items()}
        arrays = [self._array(node, values[name], missing) for name, node in self._whole.items()]
        return pa.table(arrays, schema=self.schema)

    def _array(self, node: Any, values: Any, missing: Mapping[str, Array]) -> pa.Array:
        if isinstance(node, Mapping):
            arrays = [self._array(one, values[name], missing) for name, one in node.items()]
            return pa.StructArray.from_arrays(arrays, fields=list(_type(node, self.binary)))
        found = _values(node, values, _type(node, self.binary), self.binary)
        is_missing = missing.get(node.name)
        if is_missing is not None and is_missing.any():
            found = pc.if_else(pa.array(~is_missing), found, pa.scalar(None, found.type))
        return found


def _filled(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a tree without empty dicts of features."""
    inner = {
        name: _filled(node) if isinstance(node, Mapping) else node for name, node in tree.items()
    }
    return {name: node for name, node in inner.items() if node != {}}


def _as_file(leaf: Leaf) -> Leaf:
    """Returns a leaf that keeps image files encoded."""
    if leaf.form != "image":
        return leaf
    return replace(leaf, form="bytes", dtype="object", shape=())


def _type(node: Any, binary: frozenset[str]) -> pa.DataType:
    if isinstance(node, Mapping):
        return pa.struct([(name, _type(one, binary)) for name, one in node.items()])
    found = _value_type(node, binary)
    for _ in range(_depth(node)):
        found = pa.list_(found)
    return found


def _value_type(leaf: Leaf, binary: frozenset[str]) -> pa.DataType:
    if leaf.form == "image":
        return _IMAGE
    if leaf.form == "bytes":
        return pa.binary() if leaf.name in binary else pa.string()
    return pa.from_numpy_dtype(_dtype(leaf))


def _dtype(leaf: Leaf) -> "np.dtype[np.generic]":
    """Returns the dtype of a leaf; float16 becomes float32, since few readers support it."""
    dtype = np.dtype(leaf.dtype)
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def _depth(leaf: Leaf) -> int:
    """Returns the number of lists around a value."""
    return len(leaf.sequence) + (len(leaf.shape) if leaf.form == "number" else 0)


def _values(leaf: Leaf, values: Any, wanted: pa.DataType, binary: frozenset[str]) -> pa.Array:
    if isinstance(values, Ragged):
        inner = wanted
        for _ in values.lengths:
            inner = inner.value_type
        found = _values(leaf, values.values, inner, binary)
        for lengths in reversed(values.lengths):
            found = _listed(found, lengths)
        return found
    if values.dtype != object:
        return _nested(pa.array(values.astype(_dtype(leaf), copy=False).reshape(-1)), values.shape)
    if leaf.form == "number":  # tensors of different shapes
        each = [
            _nested(pa.array(one.astype(_dtype(leaf), copy=False).reshape(-1)), (1, *one.shape))
            for one in values
        ]
        return pa.concat_arrays(each) if each else pa.array([], wanted)
    if len(values) and isinstance(
        values.flat[0], np.ndarray
    ):  # lists of different lengths in lists
        each = [(_texts(leaf, one.reshape(-1).tolist(), binary), one.shape) for one in values]
        lists = [_nested(texts, (1, *shape)).to_pylist()[0] for texts, shape in each]
        return pa.array(lists, wanted)
    return _nested(_texts(leaf, values.reshape(-1).tolist(), binary), values.shape)


def _texts(leaf: Leaf, given: list[bytes], binary: frozenset[str]) -> pa.Array:
    if leaf.form == "image":
        files = pa.array(given, pa.binary())
        return pa.StructArray.from_arrays(
            [files, pa.nulls(len(given), pa.string())], fields=list(_IMAGE)
        )
    if leaf.name in binary:
        return pa.array(given, pa.binary())
    try:
        return pa.array(given, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise FeatureError(
            f"Not all values of the feature {leaf.name!r} are text.",
            "Expected: UTF-8",
            fix=f"export them as bytes: --binary {leaf.name}",
        ) from error


def _nested(flat: pa.Array, shape: Sequence[int]) -> pa.Array:
    """Nests flat values in lists for each dimension but the first."""
    found = flat
    for at in range(len(shape) - 1, 0, -1):
        count = int(np.prod(shape[:at]))
        found = _listed(found, np.full(count, shape[at], np.int64))
    return found


def _listed(values: pa.Array, lengths: Array) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _noted(node: Any, binary: frozenset[str]) -> Any:
    """Returns a feature in the metadata of `datasets`."""
    if isinstance(node, Mapping):
        return {name: _noted(one, binary) for name, one in node.items()}
    found: Any
    names = node.labels or ()
    if node.form == "image":
        found = {"_type": "Image"}
    elif names and len(set(names)) == len(names):
        found = {"names": list(names), "_type": "ClassLabel"}
    else:
        found = {"dtype": str(_value_type(node, binary)).replace("double", "float64"),
                 "_type": "Value"}  # fmt: skip
        if found["dtype"] == "float":
            found["dtype"] = "float32"
    for _ in range(_depth(node)):
        found = {"feature": found, "_type": "List"}
    return found
