"""The documents of a store: records, indexes, settings, signatures; protection from rollbacks."""
