"""Builds prepared versions: units, sorted runs, shards, and a journal from which builds resume."""
