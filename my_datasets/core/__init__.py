"""Basic types without I/O: references, versions, issues, sizes, hashes."""
