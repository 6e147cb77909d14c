"""Scaffolding: from raw data to a builder that passes its test, with nothing left to guess."""
