"""How the pieces of an epoch are distributed to workers, and the guarantees that follow."""

from dataclasses import dataclass
from typing import Literal, get_args

from my_datasets.errors import InvalidOptionError

Sharding = Literal["exact", "static", "dynamic", "off"]
# How workers get pieces: an idle worker takes the next one, each has its own, or each makes all.
Dealing = Literal["taken", "fixed", "all"]


@dataclass(frozen=True)
class Policy:
    """A sharding mode and its guarantees.

    Attributes:
      sharding: The mode's name.
      dealing: How workers get pieces.
      is_ordered: Whether batches come in the plan's order; otherwise in the order they are made.
      makes_again: Whether other workers make the pieces that were lost with a worker.
      may_lose: Whether an epoch may lack examples that were lost with a worker.
      may_repeat: Whether an epoch may repeat examples.
    """

    sharding: Sharding
    dealing: Dealing
    is_ordered: bool = False
    makes_again: bool = False
    may_lose: bool = False
    may_repeat: bool = False

    @property
    def guarantee(self) -> str:
        """The delivery guarantee for each example, in words."""
        if self.may_lose:
            return "at most once"
        return "at least once" if self.may_repeat else "exactly once"


_POLICIES = (
    Policy("exact", "taken", is_ordered=True, makes_again=True),
    Policy("static", "fixed", is_ordered=True),
    Policy("dynamic", "taken", may_lose=True),
    Policy("off", "all", may_repeat=True),
)


def policy_of(sharding: str) -> Policy:
    """Returns the policy of a sharding mode.

    Raises:
      InvalidOptionError: There is no such mode.
    """
    found = next((one for one in _POLICIES if one.sharding == sharding), None)
    if found is None:
        names = ", ".join(map(repr, get_args(Sharding)))
        raise InvalidOptionError(f"sharding={sharding!r} is unknown.", fix=f"use one of {names}")
    return found
