"""Message formats: a `tf.Example`, or JSON or Avro to convert to one."""

import base64
import binascii
import functools
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from my_datasets.building.units import InvalidValue
from my_datasets.core import json_types
from my_datasets.core.arrays import Array
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.metadata.features import Leaf
from my_datasets.records import tfrecord
from my_datasets.records.random_access import RecordBatch
from my_datasets.records.tf_example import pieces
from my_datasets.records.tf_example.columns import PADDING, Bytes, Places

if TYPE_CHECKING:
    from my_datasets.builders.encode.encoder import ExampleEncoder

# The columns of examples, and the leaves of features, nested like the features.
Columns: TypeAlias = "Mapping[str, Columns] | tuple[Columns, ...] | Array | Ragged"
Leaves: TypeAlias = "Mapping[str, Leaves] | tuple[Leaves, ...] | Leaf"


@dataclass(frozen=True)
class MessageValues:
    """The values of some messages.

    Attributes:
      data: A buffer that contains all of them, and ends with `PADDING` bytes.
      starts: Where each value begins, in the messages' order; shape [n].
      stops: Where each value ends, exclusive; shape [n].
      are_present: Whether each message has a value; one without only marks a key as deleted; shape
        [n].
    """

    data: Bytes
    starts: Places
    stops: Places
    are_present: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> "MessageValues":
        """Copies values into a buffer; None for a message without a value."""
        pieces = Pieces()
        pieces.add(values)
        return pieces.together()

    def __len__(self) -> int:
        return len(self.stops)

    def __getitem__(self, rows: slice | Places) -> "MessageValues":
        """Returns some of the values, in order, with only the part of the buffer they need."""
        starts, stops = self.starts[rows], self.stops[rows]
        begin, end = (int(starts[0]), int(stops[-1])) if len(stops) else (0, 0)
        data = self.data[begin : end + PADDING]
        return MessageValues(data, starts - begin, stops - begin, self.are_present[rows])

    def __iter__(self) -> Iterator[bytes]:
        """Yields each value; empty for a message without one."""
        view = self.data.data
        for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True):
            yield bytes(view[start:stop])

    @property
    def records(self) -> RecordBatch:
        """All values, as records."""
        return RecordBatch(self.data, self.starts, self.stops)


class Pieces:
    """Values that arrive a few at a time.

    They are copied immediately, while they are in the processor's cache, so that the memory they
    arrive in can be reused.

    Attributes:
      size: The total number of bytes.
    """

    def __init__(self) -> None:
        self._joined: list[bytes] = []
        self._sizes: list[Places] = []
        self._are_there: list[npt.NDArray[np.bool_]] = []
        self.size = 0

    def add(self, values: Sequence[bytes | None]) -> None:
        """Adds values; None for a message without a value."""
        n = len(values)
        try:
            joined = b"".join(values)  # type: ignore[arg-type]
            are_present = np.ones(n, np.bool_)
        except TypeError:
            are_present = np.array([one is not None for one in values], np.bool_)
            values = [one or b"" for one in values]
            joined = b"".join(values)  # type: ignore[arg-type]
        self._joined.append(joined)
        self._sizes.append(np.fromiter(map(len, values), np.int64, n))  # type: ignore[arg-type]
        self._are_there.append(are_present)
        self.size += len(joined)

    def __len__(self) -> int:
        return sum(map(len, self._sizes))

    @property
    def deletions(self) -> int:
        """The number of messages without a value."""
        return sum(len(one) - int(np.count_nonzero(one)) for one in self._are_there)

    def only(self, rows: Places) -> "Pieces":
        """Returns some of the values, in order."""
        found, values = Pieces(), self.together()[rows]
        present = zip(values, values.are_present.tolist(), strict=True)
        found.add([value if is_present else None for value, is_present in present])
        return found

    def together(self) -> MessageValues:
        """Returns all values added so far, concatenated."""
        data = np.frombuffer(b"".join([*self._joined, bytes(PADDING)]), np.uint8)
        sizes = np.concatenate([np.zeros(0, np.int64), *self._sizes])
        stops = np.cumsum(sizes)
        are_present = np.concatenate([np.zeros(0, np.bool_), *self._are_there])
        return MessageValues(data, stops - sizes, stops, are_present)


# The frame of messages that use a schema registry: a zero byte, and the schema's ID.
_MAGIC = 0
_HEADER = 5
# Key of the only schema, for messages that do not begin with a schema's ID.
_ONLY = -1

# An Avro schema, parsed or as JSON text; or several, by their IDs in a schema registry.
_OneSchema: TypeAlias = str | bytes | list[json_types.Json] | Mapping[str, json_types.Json]
AvroSchema: TypeAlias = _OneSchema | Mapping[int, _OneSchema]


@dataclass(frozen=True)
class Transcoder:
    """Converts messages in JSON or Avro to records: the parser's examples, encoded."""

    parser: "Json | Avro"
    encoder: "ExampleEncoder"

    def records(self, values: MessageValues) -> RecordBatch:
        """Returns the messages as `tf.Example`s; raises `InvalidValue` if one is invalid."""
        if not len(values):
            return values.records
        examples = list(map(self.parser.example, values))
        try:
            framed = self.encoder.rows(examples)
        except Exception:
            if len(examples) > 1:
                raise InvalidValue("", "examples", "one that does not fit") from None
            framed = self.encoder.row(examples[0])  # raises an InvalidValue with details
        offsets = pieces.offsets_of(framed)
        begins = offsets - offsets[0]
        padded = np.append(pieces.bytes_of(framed), np.zeros(PADDING, np.uint8))
        return RecordBatch(padded, begins[:-1] + tfrecord.HEADER, begins[1:] - tfrecord.FOOTER)


@dataclass(frozen=True)
class Json:
    """Messages in JSON: an object with a member for each feature; images in base64."""

    tree: Leaves

    def example(self, value: bytes) -> object:
        """Returns a message's example as `_generate_examples` yields it, or raises InvalidValue."""
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidValue("", "JSON", str(error)) from error
        return _fitted(self.tree, found)


@dataclass(frozen=True)
class Avro:
    """Messages in Avro: a record with a field for each feature.

    With several schemas, messages begin with the ID of theirs.
    """

    tree: Leaves
    schema: AvroSchema
    _parsed: dict[int, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Parses the schema; raises InvalidOptionError if it is not one of Avro."""
        avro = _avro()
        given: Mapping[Any, object] = {_ONLY: self.schema}
        if isinstance(self.schema, Mapping) and self.schema:
            given = self.schema if all(isinstance(key, int) for key in self.schema) else given
        try:
            for number, one in given.items():
                read = json.loads(one) if isinstance(one, (str, bytes)) else one
                self._parsed[number] = avro.parse_schema(read)
        except Exception as error:
            raise InvalidOptionError(
                f"The Avro schema is invalid: {type(error).__name__}: {error}",
                fix="give the schema that the messages were written with, as a dict or JSON",
            ) from error

    def example(self, value: bytes) -> object:
        """Returns a message's example; see `Json.example`."""
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
            raise InvalidValue("", "Avro of the schema", f"{left} more bytes after it")
        return _fitted(self.tree, found)

    def _numbered(self, header: bytes) -> object:
        if len(header) < _HEADER or header[0] != _MAGIC:
            raise InvalidValue("", "Avro with the number of a schema", repr(header))
        number = int.from_bytes(header[1:], "big")
        if number not in self._parsed:
            raise InvalidValue("", f"one of the schemas {sorted(self._parsed)}", f"schema {number}")
        return self._parsed[number]


@functools.cache
def _avro() -> ModuleType:
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise missing_dependency("fastavro", needed_for="messages in Avro") from error
    return fastavro


def _fitted(tree: Leaves, value: object, path: str = "") -> object:
    """Returns a value in the encoder's form, without texts that it would open as file paths.

    Raises:
      InvalidValue: The value has another structure or type.
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
    if isinstance(tree, Leaf):
        if tree.form == "image":
            return _image(tree, value)
        if tree.form == "number" and tree.labels is None:
            _refuse_texts(tree, value)
    return value


def _in_sequence(tree: Leaves) -> bool:
    return any(leaf.sequence for leaf in pytree.columns_of(tree))


def _image(leaf: Leaf, value: object) -> object:
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


def _refuse_texts(leaf: Leaf, value: object) -> None:
    if isinstance(value, list):
        for one in value:
            _refuse_texts(leaf, one)
    elif isinstance(value, (str, bytes, Mapping)):
        raise InvalidValue(leaf.name, f"numbers of {leaf.dtype}", _shown(value))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
