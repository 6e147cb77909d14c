"""Message formats: a `tf.Example`, or JSON or Avro to convert to one."""

import base64
import binascii
import functools
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from my_datasets.building.units import InvalidValue
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import InvalidOptionError, explain
from my_datasets.input_pipeline.decode import pytree
from my_datasets.kafka.decode.values import MessageValues
from my_datasets.metadata.features import Leaf
from my_datasets.records import tfrecord
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example import pieces
from my_datasets.records.tf_example.columns import PADDING

# The frame of messages that use a schema registry: a zero byte, and the schema's ID.
_MAGIC = 0
_HEADER = 5
# Key of the only schema, for messages that do not begin with a schema's ID.
_ONLY = -1


class Payload(Protocol):
    """Converts messages to records."""

    def records(self, values: MessageValues) -> RecordBatch:
        """Returns the messages as `tf.Example`s.

        Raises:
          Misfit: At least one message is invalid.
        """


class RecordEncoder(Protocol):
    """Converts examples to records: `my_datasets.builders.encode.encoder.ExampleEncoder`."""

    def rows(self, examples: Sequence[Any]) -> Any:
        """Returns a framed record for each example; may raise any exception if one does not fit."""

    def row(self, item: Any) -> Any:
        """Returns one example's framed record; raises `Misfit` if it does not fit."""


class ExamplePayloads:
    """Messages that are `tf.Example`s, as TFDS writes them."""

    def records(self, values: MessageValues) -> RecordBatch:
        """Returns the messages themselves."""
        return values.records


class PayloadParser(Protocol):
    """Parses a message into an example, in the form that `_generate_examples` yields."""

    def example(self, value: bytes) -> Any:
        """Returns a message's example.

        Raises:
          Misfit: The message is invalid.
        """


@dataclass(frozen=True)
class Objects:
    """Messages with an example in another format.

    Attributes:
      parser: Parses messages into examples.
      encoder: Converts examples to records.
    """

    parser: PayloadParser
    encoder: RecordEncoder

    def records(self, values: MessageValues) -> RecordBatch:
        """Returns the messages' examples as records."""
        if not len(values):
            return values.records
        examples = list(map(self.parser.example, values))
        try:
            framed = self.encoder.rows(examples)
        except Exception:
            if len(examples) > 1:
                raise InvalidValue("", "examples", "one that does not fit") from None
            framed = self.encoder.row(examples[0])  # raises a Misfit with details
        offsets = pieces.offsets_of(framed)
        begins = offsets - offsets[0]
        padded = np.append(pieces.bytes_of(framed), np.zeros(PADDING, np.uint8))
        return RecordBatch(padded, begins[:-1] + tfrecord.HEADER, begins[1:] - tfrecord.FOOTER)


@dataclass(frozen=True)
class Json:
    """Messages in JSON: an object with a member for each feature; images in base64.

    Attributes:
      tree: The leaves of an example, nested like it.
    """

    tree: Any

    def example(self, value: bytes) -> Any:
        """Returns a message's example."""
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidValue("", "JSON", str(error)) from error
        return _fitted(self.tree, found)


@dataclass(frozen=True)
class Avro:
    """Messages in Avro: a record with a field for each feature.

    Attributes:
      tree: The leaves of an example, nested like it.
      schema: The schema the messages were written with; or those of a schema registry, by the IDs
        that the messages then begin with.
    """

    tree: Any
    schema: Any
    _parsed: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Parses the schema.

        Raises:
          InvalidOptionError: It is not an Avro schema.
          MissingDependencyError: fastavro is not installed.
        """
        avro = _avro()
        of_registry = isinstance(self.schema, Mapping) and all(
            isinstance(number, int) for number in self.schema
        )
        given = dict(self.schema) if of_registry and self.schema else {_ONLY: self.schema}
        try:
            for number, one in given.items():
                read = json.loads(one) if isinstance(one, (str, bytes)) else one
                self._parsed[number] = avro.parse_schema(read)
        except Exception as error:
            raise InvalidOptionError(
                explain(
                    f"This is no Avro schema: {type(error).__name__}: {error}",
                    fix="give the schema that the messages were written with, as a dict or JSON",
                )
            ) from error

    def example(self, value: bytes) -> Any:
        """Returns a message's example."""
        file = io.BytesIO(value)
        schema = self._parsed.get(_ONLY) or self._numbered(file.read(_HEADER))
        try:
            found = _avro().schemaless_reader(file, schema, None)
        except Exception as error:
            raise InvalidValue(
                "", "Avro of the schema", f"{type(error).__name__}: {error}"
            ) from error
        left = len(value) - file.tell()
        if left:
            raise InvalidValue("", "Avro of the schema", f"{left} more bytes behind it")
        return _fitted(self.tree, found)

    def _numbered(self, header: bytes) -> Any:
        if len(header) < _HEADER or header[0] != _MAGIC:
            raise InvalidValue("", "Avro with the number of a schema", repr(header))
        number = int.from_bytes(header[1:], "big")
        if number not in self._parsed:
            raise InvalidValue("", f"one of the schemas {sorted(self._parsed)}", f"schema {number}")
        return self._parsed[number]


@functools.cache
def _avro() -> Any:
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise missing_dependency("fastavro", needed_for="messages in Avro") from error
    return fastavro


def _fitted(tree: Any, value: Any, path: str = "") -> Any:
    """Returns a value in the encoder's form, without texts that it would open as file paths.

    Args:
      tree: The leaves.
      value: The value, nested like the leaves, or a list where leaves are in sequences.
      path: The feature's name.

    Raises:
      Misfit: The value has another structure or type.
    """
    if isinstance(tree, Mapping):
        if isinstance(value, list) and _in_sequence(tree):
            return [_fitted(tree, one, path) for one in value]
        if not isinstance(value, Mapping):
            raise InvalidValue(path, f"an object with {sorted(tree)}", _shown(value))
        missing = sorted(set(tree) - set(value))
        if missing:
            raise InvalidValue(path, f"a value for {missing[0]!r}", "none")
        prefix = f"{path}/" if path else ""
        return {name: _fitted(node, value[name], f"{prefix}{name}") for name, node in tree.items()}
    leaf: Leaf = tree
    if leaf.form == "image":
        return _image(leaf, value)
    if leaf.form == "number" and leaf.labels is None:
        _refuse_texts(leaf, value)
    return value


def _in_sequence(tree: Any) -> bool:
    return any(leaf.sequence for leaf in pytree.columns_of(tree))


def _image(leaf: Leaf, value: Any) -> Any:
    if isinstance(value, list) and leaf.sequence:
        return [_image(leaf, one) for one in value]
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidValue(leaf.name, "an image's file in base64", str(error)) from error
    if isinstance(value, list):
        try:
            return np.array(value, leaf.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidValue(leaf.name, f"pixels of {leaf.dtype}", str(error)) from error
    raise InvalidValue(leaf.name, "an image", _shown(value))


def _refuse_texts(leaf: Leaf, value: Any) -> None:
    if isinstance(value, list):
        for one in value:
            _refuse_texts(leaf, one)
    elif isinstance(value, (str, bytes, Mapping)):
        raise InvalidValue(leaf.name, f"numbers of {leaf.dtype}", _shown(value))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
