"""The order of examples, and which of them form a batch: permutation, mixing, lengths, state."""
