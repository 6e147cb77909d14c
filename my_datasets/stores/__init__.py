"""Stores: where releases live, and what is made for them on other machines meanwhile."""
