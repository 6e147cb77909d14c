"""Records: hashes keys, encodes and parses `tf.Example`s, and reads, writes and indexes shards."""
