"""Generates a complete, tested builder from raw data."""
