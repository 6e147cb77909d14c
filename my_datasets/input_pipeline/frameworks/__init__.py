"""Adapters of plans and sources to TensorFlow, PyTorch and Grain."""
