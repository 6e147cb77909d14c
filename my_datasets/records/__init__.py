"""Records: hash keys, encode and parse `tf.Example`s, and read, write and index TFRecords."""
