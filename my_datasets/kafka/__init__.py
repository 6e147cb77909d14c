"""Reads examples from Kafka: batches of an unbounded topic, and versions of a range of offsets."""
