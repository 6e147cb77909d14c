"""Examines prepared versions and compares two of them."""
