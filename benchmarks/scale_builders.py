"""The builders of `scale.py`: a module, which workers import.

What they build is told by the environment, which workers of this machine inherit.
"""

import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_datasets as tfds

import my_datasets

KIND = os.environ.get("BENCHMARK_KIND", "table")
TOTAL = int(os.environ.get("BENCHMARK_EXAMPLES", "10000"))
UNITS = 50


def rows(unit: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the examples of a unit."""
    rng = np.random.default_rng(unit)
    for i in range(unit * TOTAL // UNITS, (unit + 1) * TOTAL // UNITS):
        if KIND == "images":
            # As random as a drawing: some of its pixels.
            image = np.zeros((28, 28, 1), np.uint8)
            image[8:20, 8:20, 0] = rng.integers(0, 256, (12, 12))
            yield f"{i}", {"image": image, "label": i % 10}
        else:
            values = rng.random(12, np.float32).tolist()
            yield f"{i}", {**{f"x{n}": value for n, value in enumerate(values)}, "label": i % 10}


def info(builder: Any) -> Any:
    """Returns the features."""
    features: dict[str, Any] = {"label": tfds.features.ClassLabel(num_classes=10)}
    if KIND == "images":
        features["image"] = tfds.features.Image(shape=(28, 28, 1))
    else:
        features |= {f"x{n}": np.float32 for n in range(12)}
    return tfds.core.DatasetInfo(builder=builder, features=tfds.features.FeaturesDict(features))


class Units(my_datasets.Builder, skip_registration=True):
    """As units."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First."}  # noqa: RUF012
    name = "benchmark"

    def _info(self) -> Any:
        return info(self)

    def _split_generators(self, _: Any) -> Any:
        return {"train": self.units(rows, range(UNITS))}


class Transform(Units, skip_registration=True):
    """As a transform."""

    name = "benchmark"

    def _split_generators(self, _: Any) -> Any:
        return {"train": beam.Create(range(UNITS)) | beam.FlatMap(rows)}


class Theirs(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[misc, call-arg]
    """As the same transform, through TFDS's own writer."""

    VERSION = Units.VERSION
    name = "benchmark"
    _info = Units._info
    _split_generators = Transform._split_generators

    def _generate_examples(self, *_: Any) -> Any:
        raise NotImplementedError


BUILDERS = {"units": Units, "transform": Transform, "local": Units, "tfds": Theirs}
