"""Transforms of decoded examples: augmentation, tokenization, feature columns."""
