"""The first examples of a version, as pages show them."""
