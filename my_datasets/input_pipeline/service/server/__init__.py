"""The dispatcher and worker processes of a tf.data service."""
