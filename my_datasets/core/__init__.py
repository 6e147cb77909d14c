"""Basic types and tools: references, versions, issues, sizes, hashes, logs, signals, processes."""
