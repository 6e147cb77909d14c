"""Commands that make builders and versions."""
