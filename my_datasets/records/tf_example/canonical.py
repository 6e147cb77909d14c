"""The canonical bytes of an example and their hashes, independent of how the example is stored.

The canonical form is a `tf.Example` (tensorflow/core/example/{example,feature}.proto) with map
entries sorted by the bytes of their keys, packed numbers, and varints of minimal length. This
package always writes it; other writers leave the order of the map to chance.
"""

import functools
import hashlib
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from my_datasets.core.hash_sets import SIZE, Hashes
from my_datasets.records.tf_example.columns import UnreadableRecordError
from my_datasets.records.tf_example.encoding import entry, of_entries

_PACKAGE = "my_datasets.canonical"


def canonical(record: bytes, without: Collection[str] = ()) -> bytes:
    """Returns the canonical bytes of a `tf.Example` in any form, without some features.

    Raises:
      UnreadableRecordError: `record` is not a `tf.Example`.
    """
    example = _example()()
    try:
        example.ParseFromString(record)
    except message.DecodeError as error:
        raise UnreadableRecordError(0, str(error)) from error
    example.DiscardUnknownFields()
    features = example.features.feature
    for key in [key for key in features if _is_of(key, without)] if without else ():
        del features[key]
    if _is_sorted_by_protobuf(tuple(features)):
        found: bytes = example.SerializeToString(deterministic=True)
        return found
    return of_entries(entry(key, features[key].SerializeToString()) for key in sorted(features))


def hashes(records: Iterable[bytes], without: Collection[str] = ()) -> Hashes:
    """Returns the SHA-256 of each example's canonical bytes; shape [n, 32].

    Raises:
      UnreadableRecordError: A record is not a `tf.Example`; the error names its row.
    """
    digests = []
    for row, record in enumerate(records):
        try:
            digests.append(hashlib.sha256(canonical(record, without)).digest())
        except UnreadableRecordError as error:
            raise UnreadableRecordError(row, error.reason) from error
    return joined(digests)


@functools.lru_cache(maxsize=1024)
def _is_sorted_by_protobuf(keys: tuple[str, ...]) -> bool:
    """Returns whether protobuf's deterministic output sorts these keys by their bytes.

    Its C implementation (upb, protobuf 6.33) puts `numbers` before `number`: if one key is a prefix
    of the other, the longer one comes first.
    """
    return not any(after.startswith(before) for before, after in pairwise(sorted(keys)))


def _is_of(key: str, names: Collection[str]) -> bool:
    """Returns whether a key belongs to one of the features, directly or as one of its sub-keys."""
    return any(key == name or key.startswith(f"{name}/") for name in names)


def joined(digests: list[bytes]) -> Hashes:
    """Returns digests as an array, shape [n, 32]."""
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, SIZE)


@functools.cache
def _example() -> Any:
    """Returns a class for `tf.Example`, defined here to avoid importing TensorFlow."""
    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="my_datasets/canonical.proto", package=_PACKAGE, syntax="proto3"
    )

    def add(
        to: descriptor_pb2.DescriptorProto, number: int, name: str, kind: Any, **options: Any
    ) -> None:
        """Adds a field of a type, or of a message if `kind` is its name."""
        if isinstance(kind, str):
            options["type_name"], kind = f".{_PACKAGE}.{kind}", proto.TYPE_MESSAGE
        options.setdefault("label", proto.LABEL_OPTIONAL)
        to.field.add(name=name, number=number, type=kind, **options)

    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    kinds = {
        "BytesList": proto.TYPE_BYTES, "FloatList": proto.TYPE_FLOAT, "Int64List": proto.TYPE_INT64
    }  # fmt: skip
    for number, (name, kind) in enumerate(kinds.items(), 1):
        add(file.message_type.add(name=name), 1, "value", kind, label=proto.LABEL_REPEATED)
        add(feature, number, name.lower(), name, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    add(entry, 1, "key", proto.TYPE_STRING)
    add(entry, 2, "value", "Feature")
    add(features, 1, "feature", "Features.FeatureEntry", label=proto.LABEL_REPEATED)
    add(file.message_type.add(name="Example"), 1, "features", "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Example"))
