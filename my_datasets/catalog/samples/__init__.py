"""The first examples of a version, for pages."""
