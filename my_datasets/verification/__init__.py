"""Verifies prepared versions against their manifests and by rebuilding; adopts TFDS's versions."""
