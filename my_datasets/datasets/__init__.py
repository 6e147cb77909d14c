"""The datasets of this package, one folder each; TFDS finds them by name."""
