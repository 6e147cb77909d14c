"""`digits`: 1,797 handwritten digits of 8x8 pixels, embedded in this package."""

import gzip
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

import my_datasets

# Byte-identical to the file in scikit-learn's wheel.
_SOURCE = "digits.csv.gz"

# The file has no official split, and its writers vary in difficulty along it: every fifth row is
# for testing, so that both splits cover the whole file.
_TEST_EVERY = 5


class Builder(my_datasets.Builder):
    """Builds `digits` from the file beside this module."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {
        "1.0.0": "First release: all 1,797 images; every fifth is in test (359), others in train.",
    }

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(
                        shape=(8, 8, 1),
                        dtype=np.uint8,
                        encoding_format="png",
                        doc=tfds.features.Documentation(
                            desc="Number of black pixels in each 4x4 block of a 32x32 bitmap.",
                            value_range="0 (white) to 16 (black)",
                        ),
                    ),
                    "label": tfds.features.ClassLabel(
                        num_classes=10,
                        doc=tfds.features.Documentation(desc="The digit that was written."),
                    ),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
            license="CC BY 4.0",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        del dl_manager  # nothing is downloaded
        rows = _read(self.embedded_file(_SOURCE))
        numbers = np.arange(len(rows))
        testing = numbers % _TEST_EVERY == _TEST_EVERY - 1
        return {
            "train": self._generate_examples(rows, numbers[~testing]),
            "test": self._generate_examples(rows, numbers[testing]),
        }

    def _generate_examples(
        self, rows: np.ndarray, numbers: np.ndarray
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the examples of some rows of the file.

        Args:
          rows: uint8, shape (rows, 65): 64 pixels row by row, then the label.
          numbers: int64, the numbers of the rows to yield, counted from 0; they are the keys.
        """
        for number in numbers.tolist():
            row = rows[number]
            yield number, {"image": row[:64].reshape(8, 8, 1), "label": int(row[64])}


def _read(path: epath.Path) -> np.ndarray:
    """Reads a file with 65 comma-separated integers per row; returns uint8, shape (rows, 65)."""
    with path.open("rb") as raw, gzip.open(raw, "rt") as text:
        return np.loadtxt(text, delimiter=",", dtype=np.uint8)
