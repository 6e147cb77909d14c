"""Commands that look at versions."""
