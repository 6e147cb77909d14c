"""Where the records of a plan come from."""
