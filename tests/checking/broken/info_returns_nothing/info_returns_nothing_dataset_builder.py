import numpy as np
import tensorflow_datasets as tfds

import my_datasets


class Builder(my_datasets.Builder):
    """A builder."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release."}

    def _info(self):
        _ = tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {"n": tfds.features.Scalar(np.int64, doc="A number.")}
            ),
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for n in range(3):
            yield n, {"n": n}
