"""The seam to TFDS: the base classes of builders, their fingerprints, downloads and builds."""
