"""`digits`: 1,797 handwritten digits of 8x8 pixels, carried by scikit-learn's wheel."""

import gzip
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

import my_datasets

_SOURCE = "pkg:pypi/scikit-learn#sklearn/datasets/data/digits.csv.gz"

# The file does not name the writers. It is cut at one place, not drawn at random, because rows that
# stand together are the likeliest to come from one form: few of them end up on both sides.
_TRAIN_FRACTION = 0.8


class Builder(my_datasets.Builder):
    """Builds `digits` from the file inside the installed scikit-learn."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {
        "1.0.0": "First release: all 1,797 images, cut into train (1,437) and test (360).",
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
        rows = _read(self.installed_file(_SOURCE))
        cut = int(len(rows) * _TRAIN_FRACTION)
        return {
            "train": self._generate_examples(rows[:cut], first=0),
            "test": self._generate_examples(rows[cut:], first=cut),
        }

    def _generate_examples(
        self, rows: np.ndarray, first: int
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the examples of consecutive rows of the file.

        Args:
          rows: uint8, shape (rows, 65): 64 pixels row by row, then the label.
          first: Number of the first row in the file; row numbers are the keys.
        """
        for number, row in enumerate(rows, start=first):
            yield number, {"image": row[:64].reshape(8, 8, 1), "label": int(row[64])}


def _read(path: epath.Path) -> np.ndarray:
    """Reads the file: 65 comma-separated integers a row; returns uint8, shape (rows, 65)."""
    with path.open("rb") as raw, gzip.open(raw, "rt") as text:
        return np.loadtxt(text, delimiter=",", dtype=np.uint8)
