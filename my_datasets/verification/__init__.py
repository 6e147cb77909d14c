"""Whether prepared data is what it is said to be."""
