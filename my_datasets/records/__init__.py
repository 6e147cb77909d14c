"""Bytes: hashing keys, encoding `tf.Example`s, framing and indexing TFRecords; no TensorFlow."""
