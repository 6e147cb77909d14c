"""Builds versions in an object store."""
