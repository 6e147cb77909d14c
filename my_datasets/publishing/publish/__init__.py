"""From a prepared version to a release."""
