"""From messages to columns."""
