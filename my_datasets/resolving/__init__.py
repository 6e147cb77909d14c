"""Resolves references: the lock, versions in code, blocked and prepared versions."""
