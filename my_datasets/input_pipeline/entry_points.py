"""`pipeline`, `batches`, `torch_loader`, `grain_dataset`: one plan, for each framework."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from my_datasets.dependencies import missing_dependency
from my_datasets.input_pipeline.decode.missing import Missing
from my_datasets.input_pipeline.engine import Batches
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.options import checked
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.planner import plan
from my_datasets.input_pipeline.plan.stages import CropKind, Remainder, Undecodable
from my_datasets.input_pipeline.read.prepared import OpenedVersions, find
from my_datasets.input_pipeline.read.source import SourceOptions, check_form, source
from my_datasets.resolving.resolver import Reference
from my_datasets.storage import addresses

if TYPE_CHECKING:
    from my_datasets.input_pipeline.frameworks.tf_dataset import Pipeline
    from my_datasets.input_pipeline.service.policies import Sharding
    from my_datasets.input_pipeline.transform.augment import Augmentation


class PlanOptions(TypedDict, total=False):
    """The options of `plan`, which says what they mean."""

    split: str
    batch_size: int
    shuffle: bool | None
    shuffle_window: int | None
    seed: int | None
    epochs: int | None
    as_supervised: bool | None
    columns: Sequence[str] | None
    image_size: tuple[int, int] | None
    image_dtype: str | None
    crop: CropKind | None
    crop_area: tuple[float, float]
    undecodable: Undecodable
    missing: Missing
    tokenizer: Mapping[str, str | os.PathLike[str]] | None
    pack: int | None
    pack_split: bool
    bucket_by: str | None
    bucket_window: int | None
    cache: str
    cache_dir: str | os.PathLike[str] | None
    shard: tuple[int, int] | str | None
    remainder: Remainder
    drop_remainder: bool
    workers: int | None
    prefetch: int | None
    memory: int | str | None
    data_dir: str | os.PathLike[str] | None
    shards_dir: str | os.PathLike[str] | None


Planned = Reference | Plan


@checked(PlanOptions)
def pipeline(
    reference: Planned,
    *,
    augment: "Augmentation | None" = None,
    state: State | None = None,
    service: str | None = None,
    sharding: "Sharding" = "exact",
    deadline: float = 60.0,
    **options: Unpack[PlanOptions],
) -> "Pipeline":
    """Returns a `tf.data.Dataset` of batches: for `model.fit`, or to go through by hand.

    Args:
      reference: A prepared dataset such as `"digits:1.*.*"`, or a plan that was made of one.
      augment: Changes the images of each batch; see `my_datasets.augment`.
      state: Where to begin, from `pipeline.state_after(steps)`, or the text that its `to_json`
        returned; None for the beginning.
      service: The URL of a tf.data service whose workers are to make the batches, as `my-datasets
        serve dispatcher` prints it; None to make them here.
      sharding: How the service's workers share the work, and what is promised of each example:
        `"exact"` or `"static"` for exactly once, in order; `"dynamic"` for at most once; `"off"`
        for at least once.
      deadline: After so many seconds in which the service gives nothing new, there is an error.
      options: Those of `plan`.

    Returns:
      A dataset of `(input, target)`, or of dicts, with the attributes `plan` and `steps_per_epoch`
      and the methods `state_after`, `iterator`, `set_epoch` and `stats`. Iterating again is the
      next epoch.

    Raises:
      NotPreparedError, SplitNotFoundError, FeatureError, InvalidOptionError: As `plan`.
      PlanError: The state belongs to another plan.
      ServiceError: The augmentation cannot be sent to other processes.
    """
    made, versions = _planned(reference, options, state)
    if service is not None:
        from my_datasets.input_pipeline.service.dataset import ServicePipeline

        return ServicePipeline(
            made, service=service, sharding=sharding, deadline=deadline, state=state,
            augment=augment, versions=versions,
        )  # fmt: skip
    from my_datasets.input_pipeline.frameworks.tf_dataset import Pipeline

    return Pipeline(made, state=state, augment=augment, versions=versions)


@checked(PlanOptions)
def batches(
    reference: Planned, *, state: State | None = None, **options: Unpack[PlanOptions]
) -> Batches:
    """Returns batches as NumPy arrays, for JAX and all else, without TensorFlow.

    The arguments and errors are those of `pipeline`. Iterating again is the next epoch.
    """
    made, versions = _planned(reference, options, state)
    return Batches(made, state, versions)


@checked(PlanOptions)
def torch_loader(
    reference: Planned, *, state: State | None = None, **options: Unpack[PlanOptions]
) -> Any:
    """Returns a `torch.utils.data.DataLoader` of batches, without TensorFlow.

    Iterating again is the next epoch; `set_epoch(n)` lets the next iteration begin at another one.
    The arguments and errors are those of `pipeline`; but `workers` is the number of processes that
    make batches, 0 for threads of this one.

    Raises:
      MissingDependencyError: PyTorch is not installed.
    """
    workers = options.pop("workers", 0) or 0
    try:
        from my_datasets.input_pipeline.frameworks import torch
    except ModuleNotFoundError as error:
        raise missing_dependency("torch", needed_for="torch_loader") from error
    return torch.torch_loader(_planned(reference, options, state)[0], state=state, workers=workers)


@checked(SourceOptions)
def grain_dataset(reference: Reference, **options: Unpack[SourceOptions]) -> Any:
    """Returns a `grain.MapDataset` of examples, to be shuffled, batched and so on by Grain.

    The arguments and errors are those of `source`.

    Raises:
      MissingDependencyError: Grain is not installed.
    """
    found = source(reference, **options)
    try:
        import grain
    except ModuleNotFoundError as error:
        raise missing_dependency("grain", needed_for="grain_dataset") from error
    return grain.MapDataset.source(found)


def _planned(
    reference: Planned, options: PlanOptions, state: State | None
) -> tuple[Plan, OpenedVersions]:
    """Returns the plan, and the version that it was made of, opened."""
    if isinstance(reference, Plan):
        made = reference if state is None else reference.resumed(state)
        return made, OpenedVersions()
    if state is not None:
        options = _resumed(options, state)
    # Before the version is looked for, as in `plan`: that may take long.
    check_form(as_supervised=options.get("as_supervised"), columns=options.get("columns"))
    if (cache_dir := options.get("cache_dir")) is not None:
        addresses.local_path(cache_dir, "cache_dir")
    found = find(reference, options.pop("data_dir", None), options.pop("shards_dir", None))
    return plan(found, **options), OpenedVersions(found)


def _resumed(options: PlanOptions, state: State) -> PlanOptions:
    """Returns options with what a saved position knows of those that were left to chance."""
    found = options.copy()
    if state.seed is not None and options.get("seed", 0) is None:
        found["seed"] = state.seed
    if state.order_version == 1 and options.get("shuffle") is None:
        # Other splits were shuffled by default then, and seed=None was none.
        found["shuffle"] = state.is_shuffled
    return found
