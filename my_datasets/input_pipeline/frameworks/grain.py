"""A split as a Grain dataset."""

import grain

from my_datasets.input_pipeline.read.source import ExampleSource


def grain_dataset(source: ExampleSource) -> grain.MapDataset:
    """Returns a split's examples, for Grain's own stages."""
    return grain.MapDataset.source(source)
