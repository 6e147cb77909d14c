"""Builders that the tests steer: what they yield, and what happens while they do."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

import my_datasets


class ToyNumbers(my_datasets.Builder):
    """Yields `values` as a train split; calls `on_example` before each."""

    VERSION = tfds.core.Version("1.1.0")
    SUPPORTED_VERSIONS: ClassVar = [tfds.core.Version("1.0.0")]
    RELEASE_NOTES: ClassVar = {"1.0.0": "First.", "1.1.0": "More."}

    values: ClassVar[list[int]] = [1, 2, 3]
    payload: ClassVar[int] = 0
    on_example: ClassVar[Callable[[int], None]] = staticmethod(lambda value: None)

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "value": tfds.features.Scalar(
                        np.int64, doc=tfds.features.Documentation(desc="A number.")
                    ),
                    "payload": tfds.features.Text(
                        doc=tfds.features.Documentation(desc="Bytes to fill a disk with.")
                    ),
                }
            ),
        )

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[Any]:
        for value in type(self).values:
            type(self).on_example(value)
            yield value, {"value": value, "payload": "x" * self.payload}
