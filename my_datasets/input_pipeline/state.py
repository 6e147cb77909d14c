"""Where an iteration is: a few numbers, and what they are about."""

import dataclasses
import json
from dataclasses import dataclass

from my_datasets.errors import PlanError, explain

_SHOWN = 12


@dataclass(frozen=True)
class State:
    """Where an iteration is: all that is needed to go on.

    Attributes:
      dataset: The dataset's full name.
      split: The split or slice.
      content: Which data it is.
      order: In which order the examples come.
      epoch: The epoch, from 0.
      position: How many of its examples were given, on all hosts together.
    """

    dataset: str
    split: str
    content: str
    order: str
    epoch: int = 0
    position: int = 0

    def check(self, other: "State") -> None:
        """Sees that both are positions in the same order.

        Args:
          other: What this is to be a position in.

        Raises:
          PlanError: They are not; the message says what differs.
        """
        differing = [
            name
            for name in ("dataset", "split", "content", "order")
            if getattr(self, name) != getattr(other, name)
        ]
        if differing:
            raise PlanError(
                explain(
                    "The saved position belongs to another plan.",
                    f"Expected: {_shown(other, differing)}",
                    f"Found: {_shown(self, differing)}",
                    mend="use the version, split and seed that it was saved with, or begin anew",
                )
            )

    def to_json(self) -> str:
        """Returns the state as a short text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "State":
        """Returns the state that `to_json` wrote.

        Raises:
          PlanError: The text is none.
        """
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise PlanError(
                explain(f"The text is no saved position: {error}", mend="begin anew")
            ) from error


def _shown(state: State, names: list[str]) -> str:
    values = {name: getattr(state, name) for name in names}
    if "content" in values:
        values["content"] = values["content"][:_SHOWN]
    return ", ".join(f"{name} {value!r}" for name, value in values.items())
