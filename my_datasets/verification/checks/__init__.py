"""One check in a file: each takes a subject, and yields what it finds."""
