"""The processes of a tf.data service."""
