"""Metadata of prepared versions: TFDS's files, the manifest and sidecars."""
