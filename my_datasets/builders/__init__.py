"""The base class of every builder here, and how TFDS finds them."""
