"""Fingerprints: what determines a builder's data, and whether it changed."""
