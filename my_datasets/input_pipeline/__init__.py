"""From a prepared version to batches, in exact order, for TensorFlow, JAX and PyTorch."""
