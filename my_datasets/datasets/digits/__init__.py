"""The `digits` dataset."""
