"""From a reference to a builder, or to a prepared version."""
