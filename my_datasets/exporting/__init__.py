"""Exports versions as Parquet files, Croissant descriptions and dataset cards."""
