"""The static site: its pages, search index and directory."""
