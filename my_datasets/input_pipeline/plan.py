"""The plan of an input pipeline: what will be done, before anything is."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from my_datasets.errors import PlanError, explain
from my_datasets.input_pipeline.stages import KINDS, Read, Stage
from my_datasets.input_pipeline.state import State

_FORMAT = 1
_S = TypeVar("_S", bound=Stage)


@dataclass(frozen=True)
class Plan:
    """The stages of an input pipeline, in the order of the data's way.

    Attributes:
      stages: The stages.
    """

    stages: tuple[Stage, ...]

    def explain(self) -> str:
        """Returns what each stage does, a line each."""
        width = max(len(type(stage).__name__) for stage in self.stages)
        return "\n".join(
            f"{type(stage).__name__.lower():<{width}}  {stage.explain()}" for stage in self.stages
        )

    def __str__(self) -> str:
        return self.explain()

    def get(self, kind: type[_S]) -> _S | None:
        """Returns the stage of a kind; None if there is none."""
        return next((stage for stage in self.stages if isinstance(stage, kind)), None)

    def the(self, kind: type[_S]) -> _S:
        """Returns the stage of a kind that every plan has."""
        found = self.get(kind)
        if found is None:
            raise PlanError(
                explain(f"The plan has no stage {kind.__name__.lower()!r}.", mend="make it anew")
            )
        return found

    @property
    def beginning(self) -> State:
        """The state before the first batch: it names all that decides the order of the examples."""
        read = self.the(Read)
        orders = [stage.order for stage in self.stages if stage.order]
        return State(read.dataset, read.split, read.content, ", ".join(orders) or "as stored")

    def to_json(self) -> str:
        """Returns the plan as JSON, from which `from_json` makes it again."""
        stages = [_written(stage) for stage in self.stages]
        return json.dumps({"format": _FORMAT, "stages": stages}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Returns the plan that `to_json` wrote.

        Raises:
          PlanError: The text is none, or of a later version of this package.
        """
        try:
            given = json.loads(text)
            if given["format"] != _FORMAT:
                raise ValueError(f"format {given['format']!r}")
            return cls(tuple(_read(stage) for stage in given["stages"]))
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(
                explain(
                    f"The text is no plan: {error}",
                    f"Expected what Plan.to_json wrote, format {_FORMAT}",
                    mend="make the plan anew",
                )
            ) from error


def _written(stage: Stage) -> Any:
    return {"stage": type(stage).__name__.lower(), **dataclasses.asdict(stage)}


def _read(given: Mapping[str, Any]) -> Stage:
    kind = KINDS[given["stage"]]
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if name != "stage"
    }
    return kind(**values)
