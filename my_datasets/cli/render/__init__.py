"""How commands print tables, charts, progress and errors."""
