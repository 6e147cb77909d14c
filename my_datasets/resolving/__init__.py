"""What a reference means: the lock, versions in code, blocked and prepared versions."""
