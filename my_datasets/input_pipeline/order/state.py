"""The state of an iteration, from which it can be resumed."""

import dataclasses
import json
import operator
import re
import threading
from dataclasses import dataclass
from typing import Any

from my_datasets.errors import InvalidOptionError, PlanError
from my_datasets.input_pipeline.order.permutation import ORDER_VERSION

_SHOWN = 12
_WORD = 1 << 64
_AS_STORED = "as stored"


@dataclass(frozen=True)
class State:
    """The state of an iteration: all that is needed to resume it.

    Attributes:
      dataset: The dataset's full name.
      split: The split or slice.
      content: A hash of the data.
      order: A description of the order of the examples.
      epoch: The epoch, from 0.
      position: The number of its examples delivered so far, on all hosts together.
      seed: The seed of the plan; None if the plan draws nothing.
      order_version: See `permutation.Order`.
    """

    dataset: str
    split: str
    content: str
    order: str
    epoch: int = 0
    position: int = 0
    seed: int | None = None
    order_version: int = ORDER_VERSION

    @property
    def identity(self) -> str:
        """What determines the order, as text; states of mixtures contain a hash of it."""
        named = (self.dataset, self.split, self.content, self.order)
        names = ("dataset", "split", "content", "order")
        return json.dumps({**dict(zip(names, named, strict=True)), "epoch": 0, "position": 0})

    @property
    def is_shuffled(self) -> bool:
        """Whether each epoch has a different order."""
        return self.order.startswith("seed ")

    def following(self, epochs: int | None) -> "State":
        """Returns where the next iteration begins; one epoch later if iterations have no end."""
        epoch = self.epoch + 1 if epochs is None else (self.epoch // epochs + 1) * epochs
        return dataclasses.replace(self, epoch=epoch, position=0)

    def check(self, other: "State") -> None:
        """Raises PlanError, saying what differs, unless both are positions in the same order."""
        differing = [
            name
            for name in ("dataset", "split", "content", "order")
            if getattr(self, name) != getattr(other, name)
        ]
        if differing:
            raise PlanError(
                "The saved position belongs to another plan.",
                f"Expected: {_shown(other, differing)}",
                f"Found: {_shown(self, differing)}",
                fix=self._fix(other, differing),
            )

    def _fix(self, other: "State", differing: list[str]) -> str:
        if self.order_version == 1 and self.order.endswith(", seed None"):
            return (
                "finish the epoch with the release of my_datasets that saved the position, which "
                "did not shuffle mixtures with seed=None; or leave state out to start over"
            )
        if differing == ["order"] and None is not self.seed != other.seed:
            return f"give seed={self.seed}, that of the position, or leave state out"
        return "use the version, split, shuffle and seed of the saved position, or leave state out"

    def to_json(self) -> str:
        """Returns the state as a short text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "State":
        """Returns the state that `to_json` wrote, in this version of the package or an earlier one.

        Raises:
          PlanError: The text is not a state, or a later version wrote it.
        """
        try:
            given = json.loads(text)
            if "order_version" not in given:
                given = _of_first_version(given)
            found = cls(**given)
            if not 1 <= found.order_version <= ORDER_VERSION:
                raise ValueError(f"order_version {found.order_version}")
            if min(found.epoch, found.position) < 0:
                raise ValueError(f"epoch {found.epoch}, position {found.position}")
            return found
        except (TypeError, ValueError, KeyError) as error:
            raise PlanError(
                f"The text is not a saved position: {error}",
                "Expected what State.to_json wrote, in this version of my_datasets or before",
                fix="use the version that saved it, or leave state out to start over",
            ) from error


class Iterations:
    """Tracks where the next iteration begins: after the epochs of the previous one.

    It does not matter how far that one got, so all hosts begin at the same epochs.
    """

    def __init__(self, first: State, epochs: int | None) -> None:
        self._next, self._epochs = first, epochs
        self._lock = threading.Lock()

    @property
    def next(self) -> State:
        """Where the next iteration will begin."""
        return self._next

    def begin(self) -> State:
        """Begins an iteration, and returns its start."""
        with self._lock:
            found, self._next = self._next, self._next.following(self._epochs)
            return found

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin at an epoch; InvalidOptionError if none begins there."""
        number = count_in(epoch)
        if number is None or number % (self._epochs or 1):
            several = self._epochs is not None and self._epochs > 1
            raise InvalidOptionError(
                f"set_epoch({epoch!r}): no iteration begins there.",
                f"Expected: a {f'multiple of {self._epochs}' if several else 'whole number'}, "
                "from 0",
                fix="give a number in this range" + (", or epochs=1" if several else ""),
            )
        with self._lock:
            self._next = dataclasses.replace(self._next, epoch=number, position=0)

    def __reduce__(self) -> tuple[type["Iterations"], tuple[State, int | None]]:
        return type(self), (self._next, self._epochs)


def count_in(value: Any) -> int | None:
    """Returns a whole number from 0, of Python, NumPy or a framework; None for anything else."""
    given = value.numpy() if hasattr(value, "numpy") else value
    if isinstance(given, bool):
        return None
    try:
        found = operator.index(given)
    except TypeError:
        return None
    return found if found >= 0 else None


def _of_first_version(given: dict[str, Any]) -> dict[str, Any]:
    """Converts a state saved before states had a seed and a version.

    At that time, None as a seed meant no shuffling, and negative seeds were taken modulo 2^64.
    """
    order = re.sub(r"^seed None(, \d+ shards)?(, )?", "", given["order"]) or _AS_STORED
    order = re.sub(r"seed (-\d+)", lambda it: f"seed {int(it[1]) % _WORD}", order)
    seed = re.search(r"seed (\d+)", order)
    return {**given, "order": order, "seed": int(seed[1]) if seed else None, "order_version": 1}


def _shown(state: State, names: list[str]) -> str:
    values = {name: getattr(state, name) for name in names}
    if "content" in values:
        values["content"] = values["content"][:_SHOWN]
    return ", ".join(f"{name} {value!r}" for name, value in values.items())
