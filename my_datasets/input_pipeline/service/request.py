"""The request to a worker: a plan and a position, as text in the graph."""

import dataclasses
import json
import os
from dataclasses import dataclass

from my_datasets.input_pipeline.frameworks.tensors import Draws
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import Mix, Read, Stage
from my_datasets.records import shard_provider
from my_datasets.storage import addresses


@dataclass(frozen=True)
class ServiceRequest:
    """What to make pieces of.

    Attributes:
      plan: The plan; its paths must mean the same on all machines.
      start: A position in the plan's order, in any iteration.
      single: Whether each batch is a piece of its own.
      draws: The random numbers added to each example.
    """

    plan: Plan
    start: State
    single: bool
    draws: Draws | None

    def to_json(self) -> str:
        """Serializes the request."""
        plan = Plan(_placed(self.plan.stages))
        given = {
            "plan": plan.to_json(),
            "attachments": plan.attachments,
            "start": self.start.to_json(),
            "single": self.single,
            "draws": None if self.draws is None else dataclasses.asdict(self.draws),
        }
        return json.dumps(given)

    @classmethod
    def from_json(cls, text: str) -> "ServiceRequest":
        """Parses what `to_json` wrote.

        Raises:
          PlanError: The plan was written by another version of this package.
        """
        given = json.loads(text)
        draws = None if given["draws"] is None else Draws(**given["draws"])
        shard_provider.receive(given.get("attachments", {}))
        plan, start = Plan.from_json(given["plan"]), State.from_json(given["start"])
        return cls(plan, start, given["single"], draws)


def _placed(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Returns the stages with absolute paths, independent of a process's working directory."""
    found: list[Stage] = []
    for stage in stages:
        if isinstance(stage, Read) and not addresses.is_remote(stage.path):
            found.append(dataclasses.replace(stage, path=os.path.abspath(stage.path)))
        elif isinstance(stage, Mix):
            found.append(dataclasses.replace(stage, parts=tuple(map(_placed, stage.parts))))
        else:
            found.append(stage)
    return tuple(found)
