"""`spoken_numbers`: recordings of spoken digits, with different speakers in each split."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import sources

_URL = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/v1.0.9.tar.gz"
_SAMPLE_RATE = 8000
# No speaker is in two splits: testing on speakers that were also trained on would measure how well
# voices are memorized.
_SPEAKERS = {
    "train": ["george", "jackson", "lucas", "nicolas"],
    "validation": ["theo"],
    "test": ["yweweler"],
}
_NAME = r"(?P<label>\d)_(?P<speaker>[a-z]+)_(?P<take>\d+)\.wav$"


class Builder(my_datasets.Builder):
    """Builds `spoken_numbers` from recordings that are read directly from their archive."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release: 3,000 recordings of six speakers."}

    def _info(self) -> tfds.core.DatasetInfo:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "audio": tfds.features.Audio(
                        shape=(None,),
                        dtype=np.int16,
                        sample_rate=_SAMPLE_RATE,
                        doc="The samples, 8,000 in a second.",
                    ),
                    "label": tfds.features.ClassLabel(
                        num_classes=10, doc="The digit that is spoken."
                    ),
                    "speaker": tfds.features.Text(doc="Who speaks."),
                    "take": tfds.features.Scalar(
                        np.int64, doc="The how manieth recording of this digit by this speaker."
                    ),
                }
            ),
            supervised_keys=("audio", "label"),
            homepage="https://github.com/Jakobovski/free-spoken-digit-dataset",
            license="CC BY-SA 4.0",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        archive = dl_manager.download(_URL)
        return {split: _recordings(archive, speakers) for split, speakers in _SPEAKERS.items()}


def _recordings(archive: Any, speakers: list[str]) -> sources.Source:
    files = [f"{archive}::*/recordings/*_{speaker}_*.wav" for speaker in speakers]
    recordings = sources.audio_folder(files, labels=False, sample_rate=_SAMPLE_RATE, channels=1)
    return recordings.map(_named)


def _named(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns recordings with the fields of their file names, such as `7_jackson_32.wav`."""
    label, speaker, take = pc.extract_regex(batch.column("file_name"), _NAME).flatten()
    return pa.RecordBatch.from_arrays(
        [batch.column("audio"), label.cast(pa.int64()), speaker, take.cast(pa.int64())],
        names=["audio", "label", "speaker", "take"],
    )
