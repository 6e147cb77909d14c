"""`tf.Example` bytes by the protocol buffer library, with the entries in the order of keys."""

from tensorflow_datasets.proto import tf_example_pb2


def in_order(message: tf_example_pb2.Example) -> bytes:
    """Serialises each map entry alone, by the library, and puts them together in order.

    The library's own `deterministic=True` has an order of its own, in which a key stands behind
    those that it begins.
    """
    entries = b""
    for key in sorted(message.features.feature, key=str.encode):
        alone = tf_example_pb2.Example()
        alone.features.feature[key].CopyFrom(message.features.feature[key])
        entries += alone.features.SerializeToString()
    whole = _wrapped(entries)
    assert tf_example_pb2.Example.FromString(whole) == message
    return whole


def _wrapped(entries: bytes) -> bytes:
    length, size = b"", len(entries)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return b"\x0a" + length + bytes([size]) + entries
