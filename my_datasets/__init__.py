"""Define, build, verify, version, publish and load machine-learning datasets on TFDS.

Importing this package registers its datasets with TensorFlow Datasets, so that
`tfds.load("digits")` finds them, without importing TensorFlow, TensorFlow Datasets or Beam: the
registration runs when TFDS itself is imported, and the names below are loaded on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from my_datasets import errors
from my_datasets._version import __version__
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import MyDatasetsError
from my_datasets.metadata.feature_classes import register_feature
from my_datasets.resolving.registry import register, register_with_tfds

if TYPE_CHECKING:
    from my_datasets import sources as sources
    from my_datasets import testing as testing
    from my_datasets.builders.base import Builder
    from my_datasets.building.options import BuildOptions
    from my_datasets.input_pipeline.entry_points import (
        batches,
        grain_dataset,
        pipeline,
        torch_loader,
    )
    from my_datasets.input_pipeline.plan.plan import Plan
    from my_datasets.input_pipeline.plan.planner import mix, plan
    from my_datasets.input_pipeline.read.source import source
    from my_datasets.input_pipeline.transform import augment as augment
    from my_datasets.input_pipeline.transform import feature_columns as feature_columns
    from my_datasets.input_pipeline.transform import text as text
    from my_datasets.kafka.stream import stream
    from my_datasets.loading import load
    from my_datasets.publishing.attach import attach
    from my_datasets.publishing.publisher import publish
    from my_datasets.publishing.puller import pull
    from my_datasets.statistics.constraints import Constraint
    from my_datasets.version import Version
    from my_datasets.version import open as open  # noqa: A004

__all__ = [
    "BuildOptions",
    "Builder",
    "Constraint",
    "DatasetReference",
    "MyDatasetsError",
    "Plan",
    "Version",
    "__version__",
    "attach",
    "batches",
    "errors",
    "grain_dataset",
    "load",
    "mix",
    "pipeline",
    "plan",
    "publish",
    "pull",
    "register",
    "register_feature",
    "source",
    "stream",
    "torch_loader",
]

_MODULES = {
    "augment": "my_datasets.input_pipeline.transform.augment",
    "feature_columns": "my_datasets.input_pipeline.transform.feature_columns",
    "sources": "my_datasets.sources",
    "testing": "my_datasets.testing",
    "text": "my_datasets.input_pipeline.transform.text",
}
# Public name -> module that defines it.
_LAZY = {
    "BuildOptions": "my_datasets.building.options",
    "Builder": "my_datasets.builders.base",
    "Constraint": "my_datasets.statistics.constraints",
    "Plan": "my_datasets.input_pipeline.plan.plan",
    "Version": "my_datasets.version",
    "attach": "my_datasets.publishing.attach",
    "batches": "my_datasets.input_pipeline.entry_points",
    "grain_dataset": "my_datasets.input_pipeline.entry_points",
    "load": "my_datasets.loading",
    "mix": "my_datasets.input_pipeline.plan.planner",
    "open": "my_datasets.version",
    "pipeline": "my_datasets.input_pipeline.entry_points",
    "plan": "my_datasets.input_pipeline.plan.planner",
    "publish": "my_datasets.publishing.publisher",
    "pull": "my_datasets.publishing.puller",
    "source": "my_datasets.input_pipeline.read.source",
    "stream": "my_datasets.kafka.stream",
    "torch_loader": "my_datasets.input_pipeline.entry_points",
}

register_with_tfds()


def __getattr__(name: str) -> Any:
    # Not in __all__: modules, because `import *` must not load them, and `open`, a builtin's name.
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "open"})
