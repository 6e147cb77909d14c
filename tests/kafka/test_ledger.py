"""Who may be told what, and when."""

from my_datasets.kafka.partitions import DeliveryLog


def test_what_was_read_before_a_loss_is_not_given_out_after_it():
    ledger = DeliveryLog()
    ledger.assign({0: 5, 1: 7})
    assert ledger.give(0, {0: 10})
    ledger.revoke([1])
    assert not ledger.give(0, {0: 20})
    assert ledger.given() == {0: 10}
    assert ledger.give(ledger.epoch, {0: 20})


def test_a_partition_that_came_back_is_not_set_back_by_what_was_consumed_before():
    ledger = DeliveryLog()
    ledger.assign({0: 0, 1: 0})
    ledger.give(0, {0: 10, 1: 10})
    ledger.revoke([0])
    ledger.assign({0: 50})  # another one has read up to there
    ledger.consume(0, {0: 10, 1: 10})
    assert ledger.to_commit() == {1: 10}
    assert ledger.given() == {0: 50, 1: 10}


def test_only_what_is_new_is_committed_until_it_has_to_be_said_again():
    ledger = DeliveryLog()
    ledger.assign({0: 0, 1: 3}, to_commit=[1])
    assert ledger.to_commit() == {1: 3}
    ledger.committed({1: 3, 9: 4})
    assert ledger.to_commit() == {}
    ledger.consume(0, {0: 4})
    assert ledger.to_commit() == {0: 4}
    ledger.committed({0: 4})
    ledger.forget_commits()
    assert ledger.to_commit() == {0: 4, 1: 3}
