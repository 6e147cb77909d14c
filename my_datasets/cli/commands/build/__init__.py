"""Commands that create builders and prepared versions."""
