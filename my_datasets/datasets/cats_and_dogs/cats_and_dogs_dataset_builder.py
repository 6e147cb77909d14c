"""`cats_and_dogs`: photographs of cats and dogs, in full size or resized at build time."""

import dataclasses
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import sources

_URL = (
    "https://download.microsoft.com/download/3/E/1/3E1C3F21-ECDB-4869-8368-6DEBA77B919F/"
    "kagglecatsanddogs_5340.zip"
)


@dataclasses.dataclass
class Config(tfds.core.BuilderConfig):
    """The size of the photographs.

    Attributes:
      shortest_side: Larger photographs are resized to this many pixels on their shortest side; None
        keeps all as they are.
    """

    shortest_side: int | None = None


class Builder(my_datasets.Builder):
    """Builds `cats_and_dogs` from photographs that are read directly from their archive."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release: all photographs that can be decoded."}
    BUILDER_CONFIGS = [
        Config(name="full", description="The photographs as they are."),
        Config(
            name="resized_256",
            description="Larger photographs with 256 pixels on their shortest side.",
            shortest_side=256,
        ),
    ]
    # About 0.01% of the files in the archive are empty, or not images.
    ON_ERROR = "quarantine"

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), doc="The photograph."),
                    "file_name": tfds.features.Text(doc="Its file in the archive: `Cat/123.jpg`."),
                    "label": tfds.features.ClassLabel(
                        names=["cat", "dog"], doc="What is to be seen."
                    ),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://www.microsoft.com/en-us/download/details.aspx?id=54765",
            license="Terms of the download page; for research.",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        archive = dl_manager.download(_URL)
        photographs = sources.image_folder(
            f"{archive}::PetImages/*/*.jpg",
            # Only decoding detects damage after the header.
            decode=True,
            shortest_side=self.builder_config.shortest_side,
        )
        return {"train": photographs.map(_lower)}


def _lower(batch: pa.RecordBatch) -> pa.RecordBatch:
    place = batch.schema.get_field_index("label")
    return batch.set_column(place, "label", pc.utf8_lower(batch.column("label")))
