"""Builds a prepared version from a range of a topic's offsets."""
