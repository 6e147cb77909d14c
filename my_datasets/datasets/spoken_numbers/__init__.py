"""The `spoken_numbers` dataset."""
