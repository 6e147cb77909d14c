"""Encodes a builder's examples as records, a column at a time."""
