"""Stores of files on this machine, in object stores and on HTTP servers; leases; the cache."""
