"""Decodes messages into columns."""
