"""Checks a builder in seconds, without building: its files, its code and its first examples."""
