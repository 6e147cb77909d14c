"""Checks of a builder, in seconds, without building: its files, its code, its first examples."""
