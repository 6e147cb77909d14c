"""Opens the data of a plan: where its examples come from, and in which order."""

from typing import Any, Protocol

from my_datasets.errors import PlanError, explain
from my_datasets.input_pipeline import prepared as prepared_version
from my_datasets.input_pipeline.order import EpochOrder, Order, Places
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.source import ExampleSource, open_source
from my_datasets.input_pipeline.stages import Decode, Read, Shuffle


class Source(Protocol):
    """Examples at random."""

    @property
    def tree(self) -> Any:
        """The leaves, nested as the columns are."""

    def __len__(self) -> int: ...

    def columns(self, numbers: Places) -> Any:
        """Returns some of the examples, as columns."""


def opened(plan: Plan) -> tuple[Source, EpochOrder]:
    """Returns the examples of a plan, as it decodes them, and their order.

    Raises:
      PlanError: The data are others than those that the plan was made for.
    """
    source = _source(plan)
    shuffle = plan.get(Shuffle)
    return source, Order(len(source), None if shuffle is None else shuffle.seed)


def _source(plan: Plan) -> ExampleSource:
    read, decode = plan.the(Read), plan.the(Decode)
    found = prepared_version.find(read.path)
    if found.content != read.content:
        raise PlanError(
            explain(
                f"{read.path} holds other data than the plan was made for.",
                f"Expected: {read.dataset}, content {read.content[:12]}",
                f"Found: {found.name}, content {found.content[:12]}",
                mend="make the plan anew",
            )
        )
    return open_source(
        found, read.split, as_supervised=decode.as_supervised, columns=decode.columns,
        image_size=decode.image_size,
    )  # fmt: skip
