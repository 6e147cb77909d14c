"""Resolves references to builders and to prepared versions."""
