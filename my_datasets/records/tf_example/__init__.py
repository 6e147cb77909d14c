"""`tf.Example` records: encodes columns to bytes and parses them back."""
