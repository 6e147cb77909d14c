"""Decodes records to columns of values, with images, missing values, buffers and a cache."""
