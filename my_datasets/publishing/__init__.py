"""Publishes, pulls, attaches and administers releases: immutable prepared versions in a store."""
