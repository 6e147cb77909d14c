"""From a builder's examples to records."""
