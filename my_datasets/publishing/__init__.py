"""Releases: prepared versions in a store, published and pulled whole, verified, and for good."""
