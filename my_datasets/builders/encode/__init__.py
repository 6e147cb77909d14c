"""Encodes a builder's examples as records."""
