"""From records to columns of values."""
