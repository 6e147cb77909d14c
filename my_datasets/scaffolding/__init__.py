"""Scaffolding: generates a complete, tested builder from raw data."""
