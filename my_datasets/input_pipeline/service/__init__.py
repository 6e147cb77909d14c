"""Batches that other machines make, through TensorFlow's own tf.data service."""
