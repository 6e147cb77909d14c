"""Where workers and the building process meet."""
