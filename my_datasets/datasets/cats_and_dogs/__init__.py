"""The `cats_and_dogs` dataset."""
