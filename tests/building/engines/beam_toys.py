"""Builders for Beam: the rows of `toys`, as collections, transforms and of a given pipeline."""

from typing import Any, ClassVar

import apache_beam as beam
import tensorflow_datasets as tfds

import my_datasets
from tests.building.engines import toys


def _pairs(unit: int, rows: int) -> Any:
    for i in range(rows):
        yield f"{unit}-{i}", toys.row(unit, i)


class Transforms(toys._Toy, skip_registration=True):
    """Each split is a transform, as TFDS's documentation shows it."""

    name = "toy_engine"

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self._transform(range(toys.UNITS)), "test": self._transform([99])}

    def _transform(self, units: Any) -> Any:
        return (
            beam.Create(list(units))
            | beam.FlatMap(_pairs, self.rows)
            | "Spread" >> beam.Reshuffle()
        )


class OfPipeline(toys._Toy, skip_registration=True):
    """Splits are collections of the pipeline that TFDS gives; one is made of units."""

    name = "toy_engine"

    def _split_generators(self, dl_manager: Any, pipeline: Any) -> Any:
        units = pipeline | beam.Create(list(range(toys.UNITS)))
        return {
            "train": units | beam.FlatMap(_pairs, self.rows),
            "test": self.units(self._generate_examples, [99]),
        }


class Mixed(toys._Toy, skip_registration=True):
    """One split is a transform of a class of its own, one a plain generator."""

    name = "toy_engine"

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": Rows(self.rows), "test": self._generate_examples(99)}


class Rows(beam.PTransform):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows

    def expand(self, begin: Any) -> Any:
        return begin | beam.Create(list(range(toys.UNITS))) | beam.FlatMap(_pairs, self.rows)


class Given(my_datasets.Builder, skip_registration=True):
    """A collection of the pairs that a test has put here."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "First."}
    name = "toy_given"
    pairs: ClassVar[list[Any]] = []
    ordered: ClassVar[bool] = False

    def _info(self) -> Any:
        features = tfds.features.FeaturesDict({"n": toys.np.int64})
        return tfds.core.DatasetInfo(
            builder=self, features=features, disable_shuffling=self.ordered
        )

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": beam.Create(self.pairs)}


class GivenPlainly(Given, skip_registration=True):
    name = "toy_given"

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": iter(self.pairs)}
