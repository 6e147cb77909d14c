"""The `penguins_study` dataset."""
