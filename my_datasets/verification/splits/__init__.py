"""Whether splits are what the manifest declares."""
