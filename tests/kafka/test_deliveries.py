"""Which messages are delivered, and which offsets count as delivered."""

from my_datasets.kafka.partitions import DeliveryLog


def test_what_was_read_before_a_loss_is_not_given_out_after_it():
    deliveries = DeliveryLog()
    deliveries.assign({0: 5, 1: 7})
    assert deliveries.deliver(0, {0: 10})
    deliveries.revoke([1])
    assert not deliveries.deliver(0, {0: 20})
    assert deliveries.delivered() == {0: 10}
    assert deliveries.deliver(deliveries.epoch, {0: 20})


def test_a_partition_that_came_back_is_not_set_back_by_what_was_consumed_before():
    deliveries = DeliveryLog()
    deliveries.assign({0: 0, 1: 0})
    deliveries.deliver(0, {0: 10, 1: 10})
    deliveries.revoke([0])
    deliveries.assign({0: 50})  # another one has read up to there
    deliveries.consume(0, {0: 10, 1: 10})
    assert deliveries.to_commit() == {1: 10}
    assert deliveries.delivered() == {0: 50, 1: 10}


def test_only_what_is_new_is_committed_until_it_has_to_be_said_again():
    deliveries = DeliveryLog()
    deliveries.assign({0: 0, 1: 3}, to_commit=[1])
    assert deliveries.to_commit() == {1: 3}
    deliveries.committed({1: 3, 9: 4})
    assert deliveries.to_commit() == {}
    deliveries.consume(0, {0: 4})
    assert deliveries.to_commit() == {0: 4}
    deliveries.committed({0: 4})
    deliveries.forget_commits()
    assert deliveries.to_commit() == {0: 4, 1: 3}
