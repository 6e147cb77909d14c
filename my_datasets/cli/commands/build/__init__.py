"""Commands that create and check builders, and build or adopt prepared versions."""
