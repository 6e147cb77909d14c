"""A split as a Grain dataset."""

from typing import Any

import grain

from my_datasets.input_pipeline.read.source import ExampleSource


def grain_dataset(source: ExampleSource) -> Any:
    """Returns a `grain.MapDataset` of a split's examples, for Grain's own stages."""
    return grain.MapDataset.source(source)
