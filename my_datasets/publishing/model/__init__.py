"""The documents of a store: records, indexes, signatures, and what was seen of them."""
