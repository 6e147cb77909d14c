"""The command line: the only part that prints, reads the environment, or exits."""
