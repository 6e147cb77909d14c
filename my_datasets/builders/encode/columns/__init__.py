"""Columns: encode many values of a top-level feature at once as map entries of `tf.Example`s.

Each kind of column encodes the values it knows in bulk. Other values and features are passed to
TFDS's own connector and serialiser, one at a time.
"""
