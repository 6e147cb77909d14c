"""Adapters of plans and sources to TensorFlow, TFDS's builders, PyTorch and Grain."""
