"""TFDS's download manager, with files fetched by this package."""
