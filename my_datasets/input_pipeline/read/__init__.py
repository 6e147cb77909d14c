"""Reads the examples of a plan: of prepared versions, attached releases and object stores."""
