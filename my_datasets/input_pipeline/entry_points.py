"""`pipeline`, `batches`, `torch_loader`, `grain_dataset`: one plan, for each framework."""

from typing import TYPE_CHECKING, Annotated, Any, Unpack

from my_datasets.dependencies import missing_dependency
from my_datasets.input_pipeline.engine import Batches
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan import option_rules as rules
from my_datasets.input_pipeline.plan.options import (
    LoaderOptions,
    PlanOptions,
    SourceOptions,
    checked,
)
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.planner import planned
from my_datasets.input_pipeline.read.prepared import OpenedVersions
from my_datasets.input_pipeline.read.source import source
from my_datasets.resolving.resolver import Reference

if TYPE_CHECKING:
    from my_datasets.input_pipeline.frameworks.tf_dataset import Pipeline
    from my_datasets.input_pipeline.service.delivery_audit import Sharding
    from my_datasets.input_pipeline.transform.augment import Augmentation

_PlanOrReference = Annotated[Reference | Plan, rules.reference]
_State = Annotated[State | None, rules.state]


@checked()
def pipeline(
    reference: _PlanOrReference,
    *,
    augment: Annotated["Augmentation | None", rules.augment] = None,
    state: _State = None,
    service: Annotated[str | None, rules.service] = None,
    sharding: Annotated["Sharding", rules.choice("exact", "static", "dynamic", "off")] = "exact",
    deadline: Annotated[float, rules.real(0, above=True)] = 60.0,
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


@checked()
def batches(
    reference: _PlanOrReference, *, state: _State = None, **options: Unpack[PlanOptions]
) -> Batches:
    """Returns batches as NumPy arrays, for JAX and all else, without TensorFlow.

    The arguments and errors are those of `pipeline`. Iterating again is the next epoch.
    """
    made, versions = _planned(reference, options, state)
    return Batches(made, state, versions)


@checked()
def torch_loader(
    reference: _PlanOrReference,
    *,
    state: _State = None,
    workers: Annotated[int | None, rules.whole(0, none="no processes")] = 0,
    **options: Unpack[LoaderOptions],
) -> Any:
    """Returns a `torch.utils.data.DataLoader` of batches, without TensorFlow.

    Iterating again is the next epoch; `set_epoch(n)` lets the next iteration begin at another one.
    The arguments and errors are those of `pipeline`; but `workers` is the number of processes that
    make batches, 0 for threads of this one.

    Raises:
      MissingDependencyError: PyTorch is not installed.
    """
    try:
        from my_datasets.input_pipeline.frameworks import torch
    except ModuleNotFoundError as error:
        raise missing_dependency("torch", needed_for="torch_loader") from error
    made, _ = _planned(reference, {**options, "workers": None}, state)
    return torch.torch_loader(made, state=state, workers=workers or 0)


@checked()
def grain_dataset(
    reference: Annotated[Reference, rules.no_plan], **options: Unpack[SourceOptions]
) -> Any:
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
    reference: Reference | Plan, options: PlanOptions, state: State | None
) -> tuple[Plan, OpenedVersions]:
    """Returns the plan, and the version that it was made of, opened."""
    if isinstance(reference, Plan):
        made = reference if state is None else reference.resumed(state)
        return made, OpenedVersions()
    if state is not None:
        # The saved position knows what was left to chance.
        options = options.copy()
        if state.seed is not None and options["seed"] is None:
            options["seed"] = state.seed
        if state.order_version == 1 and options["shuffle"] is None:
            # Other splits were shuffled by default then, and seed=None was none.
            options["shuffle"] = state.is_shuffled
    return planned(reference, options)
