"""Which examples a batch has, and in which order."""
