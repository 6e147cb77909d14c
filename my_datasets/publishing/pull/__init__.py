"""From a release to a prepared version."""
