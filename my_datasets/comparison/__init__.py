"""What is in prepared versions, and what is different between two of them."""
