"""Verifies prepared data against its manifest."""
