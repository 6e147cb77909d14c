"""Worker processes, and what they need of their environment."""
