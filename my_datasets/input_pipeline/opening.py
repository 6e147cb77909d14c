"""Opens the data of a plan: where its examples come from, and in which order."""

from typing import Any, Protocol

from my_datasets.errors import PlanError, explain
from my_datasets.input_pipeline import prepared as prepared_version
from my_datasets.input_pipeline.crops import Crop
from my_datasets.input_pipeline.order import EpochOrder, Order, Places
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.prepared import Prepared
from my_datasets.input_pipeline.skipping import SkippingSource
from my_datasets.input_pipeline.source import open_source
from my_datasets.input_pipeline.stages import Decode, Read, Shuffle


class Source(Protocol):
    """Examples at random."""

    @property
    def tree(self) -> Any:
        """The leaves, nested as the columns are."""

    def __len__(self) -> int: ...

    def columns(self, numbers: Places, epoch: int) -> Any:
        """Returns some of the examples, as columns, as they are in an epoch."""


def opened(plan: Plan) -> tuple[Source, EpochOrder]:
    """Returns the examples of a plan, as it decodes them, and their order.

    Raises:
      PlanError: The data are others than those that the plan was made for.
    """
    source = _source(plan)
    shuffle = plan.get(Shuffle)
    return source, Order(len(source), None if shuffle is None else shuffle.seed)


def _source(plan: Plan) -> Source:
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
    return open_examples(found, read.split, decode)


def open_examples(prepared: Prepared, split: str, decode: Decode, *, warns: bool = True) -> Source:
    """Returns the examples of a split as a stage decodes them.

    Args:
      prepared: The version.
      split: The split or slice.
      decode: The stage.
      warns: Whether to say which examples are skipped.

    Raises:
      FeatureError: There is no such feature.
    """
    crop = None
    if decode.crop is not None and decode.image_size is not None:
        crop = Crop(decode.crop, decode.image_size, decode.crop_area, decode.seed)
    source = open_source(
        prepared, split, as_supervised=decode.as_supervised, columns=decode.columns,
        image_size=decode.image_size, crop=crop,
    )  # fmt: skip
    return SkippingSource(source, warns=warns) if decode.undecodable == "skip" else source
