"""Finds near-duplicate images and texts across splits."""
