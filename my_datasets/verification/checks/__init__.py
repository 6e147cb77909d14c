"""One check per module: each takes a version, and yields issues."""
