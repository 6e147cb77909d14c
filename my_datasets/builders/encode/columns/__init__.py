"""Columns: a top-level feature's values, many at a time, as the map entries of `tf.Example`s.

Each kind of column encodes what it knows in bulk. A value or a feature that it does not know is
given to TFDS's own connector and serialiser, one at a time.
"""
