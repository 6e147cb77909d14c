"""Pure ideas, no input or output: references, versions, issues, sizes, hashes."""
