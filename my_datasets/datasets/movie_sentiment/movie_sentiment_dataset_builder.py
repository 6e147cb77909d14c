"""`movie_sentiment`: film reviews, half of them labeled as negative or positive."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import sources

_URL = "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
_CLASSES = ["neg", "pos"]
# The directories of each split.
_FOLDERS = {
    "train": [f"train/{name}" for name in _CLASSES],
    "test": [f"test/{name}" for name in _CLASSES],
    "unlabelled": ["train/unsup"],
}
_BYTE_ORDER_MARK = "\ufeff"


class Builder(my_datasets.Builder):
    """Builds `movie_sentiment` from texts that are read directly from their archive."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {
        "1.0.0": "First release: 25,000 reviews each to train and to test, 50,000 without a label.",
    }

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "text": tfds.features.Text(doc="The review; breaks of lines are `<br />`."),
                    "label": tfds.features.ClassLabel(
                        names=_CLASSES, doc="What the review is, -1 where nobody said it."
                    ),
                    "rating": tfds.features.Scalar(
                        np.int64, doc="Stars from 1 to 10, 0 where nobody said it."
                    ),
                }
            ),
            supervised_keys=("text", "label"),
            homepage="https://ai.stanford.edu/~amaas/data/sentiment/",
            license="No licence is stated; cite the paper.",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        archive = dl_manager.download(_URL)
        return {
            split: sources.binary_files(
                [f"{archive}::aclImdb/{folder}/*.txt" for folder in folders],
                column="text",
                labels=split != "unlabelled",
            ).map(_review)
            for split, folders in _FOLDERS.items()
        }


def _review(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns reviews with the label and stars from their paths, such as `neg/12_3.txt`."""
    label = pa.array(np.full(batch.num_rows, -1))
    if "label" in batch.schema.names:
        label = pc.index_in(batch.column("label"), pa.array(_CLASSES, pa.large_string()))
    stars = pc.extract_regex(batch.column("file_name"), r"_(?P<stars>\d+)\.txt$").field("stars")
    return pa.RecordBatch.from_arrays(
        [
            pa.array([_decoded(text) for text in batch.column("text").to_pylist()]),
            label.cast(pa.int64()),
            stars.cast(pa.int64()),
        ],
        names=["text", "label", "rating"],
    )


def _decoded(text: bytes) -> str:
    """Returns the text decoded as UTF-8, or else as Latin-1, in which some reviews were saved."""
    try:
        return text.decode().removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError:
        return text.decode("latin-1")
