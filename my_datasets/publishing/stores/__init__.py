"""Where releases live: one module for each kind of store."""
