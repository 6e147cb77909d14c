"""How the pieces of an epoch are dealt out to workers, and what is promised of it."""

from dataclasses import dataclass
from typing import Literal, get_args

from my_datasets.errors import InvalidOptionError, explain

Sharding = Literal["exact", "static", "dynamic", "off"]
# How workers take pieces: who is free takes the next one, each has its own, or each makes all.
Dealing = Literal["taken", "fixed", "all"]


@dataclass(frozen=True)
class Policy:
    """What a way of sharding does and promises.

    Attributes:
      sharding: Its name.
      dealing: How workers come to their pieces.
      is_ordered: Whether batches come in the plan's order; else as they are made.
      makes_again: Whether other workers make what was lost with one.
      may_lose: Whether an epoch may lack examples that were lost with a worker.
      may_repeat: Whether an epoch may have examples more than once.
    """

    sharding: Sharding
    dealing: Dealing
    is_ordered: bool = False
    makes_again: bool = False
    may_lose: bool = False
    may_repeat: bool = False

    @property
    def guarantee(self) -> str:
        """What is promised of each example, in words."""
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
    """Returns the policy of a name.

    Raises:
      InvalidOptionError: There is none of it.
    """
    found = next((one for one in _POLICIES if one.sharding == sharding), None)
    if found is None:
        names = ", ".join(map(repr, get_args(Sharding)))
        raise InvalidOptionError(
            explain(f"sharding={sharding!r} is unknown.", fix=f"use one of {names}")
        )
    return found
