"""Made `sidecars_named_after_shards/` once, by the code of commit 0b061dd; kept to say how."""

import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import tensorflow_datasets as tfds

import my_datasets


class Golden(my_datasets.Builder, skip_registration=True):
    """Seven numbers and their parity, in two splits."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "The first one."}
    name = "golden"

    def _info(self):
        labels = tfds.features.ClassLabel(names=["even", "odd"])
        return tfds.core.DatasetInfo(
            builder=self, description="Numbers.", citation="@misc{golden, title = {Numbers}}",
            features=tfds.features.FeaturesDict({"number": np.int64, "parity": labels}),
        )  # fmt: skip

    def _split_generators(self, dl_manager):
        return {"train": self._examples(range(5)), "test": self._examples(range(5, 7))}

    def _examples(self, rows):
        for row in rows:
            yield row, {"number": row, "parity": row % 2}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for form in ("tfrecord", "parquet"):
        builder = Golden(data_dir=target / form)
        builder.download_and_prepare(
            file_format=form, download_config=tfds.download.DownloadConfig(num_shards=2)
        )
    my_datasets.publish(str(target / "tfrecord/golden/1.0.0"), target / "store")
