"""What is done to decoded examples: augmentation, tokens, feature columns."""
