"""The base class of all builders in this package, and how TFDS finds them."""
