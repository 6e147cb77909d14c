"""Releases that are read from their store, shard by shard."""
