"""What a reference means: the lock, and versions that must not be used."""
