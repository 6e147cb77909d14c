"""`penguins_study`: measurements of 344 penguins, with missing values."""

from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import sources

_URL = (
    "https://storage.googleapis.com/download.tensorflow.org/data/palmer_penguins/penguins_size.csv"
)
_SPECIES = ["Adelie", "Chinstrap", "Gentoo"]
_ISLANDS = ["Biscoe", "Dream", "Torgersen"]
# `NA` marks missing measurements; in one row the sex is a dot.
_MISSING = ["NA", "."]
_TYPES = {
    "culmen_length_mm": pa.float32(),
    "culmen_depth_mm": pa.float32(),
    "flipper_length_mm": pa.int64(),
    "body_mass_g": pa.int64(),
}


class Builder(my_datasets.Builder):
    """Builds `penguins_study` from one CSV file."""

    VERSION = tfds.core.Version("1.1.0")
    SUPPORTED_VERSIONS = [tfds.core.Version("1.0.0")]
    BUILDABLE_VERSIONS = SUPPORTED_VERSIONS
    RELEASE_NOTES = {
        "1.1.0": "The feature `sex` was added; all else is as in 1.0.0.",
        "1.0.0": "First release: all 344 penguins in one split.",
    }

    def _info(self) -> tfds.core.DatasetInfo:
        features = {
            "species": tfds.features.ClassLabel(
                names=_SPECIES, doc="Which of three species the penguin is of."
            ),
            "island": tfds.features.ClassLabel(
                names=_ISLANDS, doc="The island of the Palmer Archipelago where it was seen."
            ),
            "culmen_length_mm": _number(np.float32, "Length of the beak's upper ridge."),
            "culmen_depth_mm": _number(np.float32, "Depth of the beak's upper ridge."),
            "flipper_length_mm": _number(np.int64, "Length of a flipper."),
            "body_mass_g": _number(np.int64, "Mass of the body."),
        }
        if self.version >= "1.1.0":
            features["sex"] = tfds.features.Scalar(
                np.str_, optional=True, doc="MALE or FEMALE, where it was found out."
            )
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(features),
            homepage="https://allisonhorst.github.io/palmerpenguins/",
            license="CC0 1.0",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        path = dl_manager.download(_URL)
        table = sources.csv(str(path), types=_TYPES, null_values=_MISSING)
        return {"train": table.select([*self.info.features])}


def _number(dtype: Any, doc: str) -> tfds.features.Scalar:
    return tfds.features.Scalar(dtype, optional=True, doc=doc)
