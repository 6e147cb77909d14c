"""A topic's range of offsets as a prepared version."""
