"""A builder in units, for commands that are interrupted."""

from typing import ClassVar

import numpy as np
import tensorflow_datasets as tfds

import my_datasets


class Stoppable(my_datasets.Builder):
    """Numbers."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "First."}
    name = "toy_stoppable"

    def _info(self):
        features = tfds.features.FeaturesDict({"n": np.int64})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self.units(self._generate_examples, range(4))}

    def _generate_examples(self, unit):
        for i in range(20):
            yield f"{unit}-{i}", {"n": unit * 100 + i}
