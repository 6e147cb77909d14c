"""Images and texts of different splits that are nearly the same."""
