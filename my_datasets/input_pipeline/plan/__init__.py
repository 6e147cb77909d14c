"""The plan of an input pipeline: its options, their rules, its stages and their sizes."""
