"""Batches made on other machines, through TensorFlow's tf.data service."""
