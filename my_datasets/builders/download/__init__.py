"""A TFDS download manager whose files are fetched by this package."""
