"""Checks of a version's files, metadata and statistics; each yields issues."""
