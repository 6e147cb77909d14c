"""The Kafka consumer: connection, partitions, offsets, and the thread that polls."""
