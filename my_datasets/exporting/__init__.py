"""Versions in the words of others: Parquet, Croissant, and cards as hubs show them."""
