"""Checks splits against the rules declared in the manifest."""
