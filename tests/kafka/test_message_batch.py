"""Batches of messages have their values, partitions and offsets."""

import confluent_kafka

from my_datasets.kafka.consumer_thread import MessageBatch


def message(partition, offset, value):
    return confluent_kafka.Message(
        topic="t", partition=partition, offset=offset, key=b"key", value=value
    )


def test_messages_that_come_in_pieces_are_one_after_the_other():
    batch = MessageBatch()
    assert not len(batch.partitions)
    batch.add([message(1, 5, b"abc"), message(1, 6, None)])
    batch.add([])
    batch.add([message(0, 2**40, b""), message(1, 7, b"de")])
    values = batch.pieces.together()
    assert list(values) == [b"abc", b"", b"", b"de"]
    assert values.are_present.tolist() == [True, False, True, True]
    assert batch.partitions.tolist() == [1, 1, 0, 1]
    assert batch.offsets.tolist() == [5, 6, 2**40, 7]
    assert batch.pieces.size == 5
    assert len(batch) == 4
