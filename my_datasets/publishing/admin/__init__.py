"""What is done with releases afterwards: list, withdraw, sign, collect garbage."""
