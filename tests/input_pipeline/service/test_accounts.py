"""What is known of each epoch, and what of it is an error."""

import pytest

from my_datasets.errors import LostExamplesError
from my_datasets.input_pipeline.order.batching import Batching
from my_datasets.input_pipeline.order.permutation import Order
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.stages import Batch
from my_datasets.input_pipeline.service.delivery_audit import POLICIES, Epoch


def epoch_of(given, dropped=()):
    """An epoch of ten examples in four batches, as they are stored, of which some came."""
    batching = Batching(Order(10), State("d", "train", "", ""), Batch(3), epochs=1)
    epoch = Epoch(0, range(4), batching)
    for number in given:
        epoch.give(number)
    for number in dropped:
        epoch.drop(number)
    return epoch


def test_an_epoch_that_is_whole():
    account = epoch_of([3, 1, 0, 2], dropped=[3]).close(POLICIES["exact"])
    assert (account.expected, account.given, account.dropped) == (10, 10, 1)
    assert account.lost == account.repeated == ()


@pytest.mark.parametrize(
    ("given", "lost", "repeated"),
    [([0, 2, 3], (3, 4, 5), ()), ([0, 1, 2, 3, 0], (), (0, 1, 2)), ([3, 3], tuple(range(9)), (9,))],
)
def test_what_is_lost_or_repeated_is_named(given, lost, repeated):
    for policy in POLICIES.values():
        if (lost and not policy.may_lose) or (repeated and not policy.may_repeat):
            with pytest.raises(LostExamplesError, match=policy.guarantee):
                epoch_of(given).close(policy)
        else:
            account = epoch_of(given).close(policy)
            assert (account.lost, account.repeated) == (lost, repeated)


def test_each_policy_says_what_it_promises():
    promised = {name: policy.guarantee for name, policy in POLICIES.items()}
    assert promised == {
        "exact": "exactly once", "static": "exactly once",
        "dynamic": "at most once", "off": "at least once",
    }  # fmt: skip
