"""Builds whose version lies in an object store."""
