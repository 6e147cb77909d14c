"""A dataset with a feature of each kind that statistics are made of."""

from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

import my_datasets

F = tfds.features
ROWS = 300


def row(i: int) -> dict[str, Any]:
    rng = np.random.default_rng(i)
    side = 4 + i % 3
    return {
        "amount": np.float32(np.nan if i % 50 == 7 else i / 7),
        "small": np.uint8(i % 200),
        "flag": bool(i % 3),
        "label": ["cat", "dog", -1][0 if i % 10 < 6 else 1 if i % 10 < 9 else 2],
        "text": "äö"[: i % 3] * (i % 40),
        "maybe": i if i % 4 else None,
        "list": list(range(i % 5)),
        "nested": [list(range(j)) for j in range(i % 3)],
        "packed": np.full((2, 3), i, np.float64),
        "image": rng.integers(0, 256, (side, 2 * side, 3), np.uint8),
        "sound": np.arange(i % 90, dtype=np.int64),
    }


class Statistics(my_datasets.Builder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "First."}
    name = "toy_statistics"

    def _info(self) -> Any:
        features = F.FeaturesDict(
            {
                "amount": np.float32,
                "small": np.uint8,
                "flag": np.bool_,
                "label": F.ClassLabel(names=["cat", "dog", "eel"]),
                "text": F.Text(),
                "maybe": F.Scalar(np.int64, optional=True),
                "list": F.Sequence(np.int32),
                "nested": F.Sequence(F.Sequence(np.int64)),
                "packed": F.Tensor(shape=(2, 3), dtype=np.float64, encoding="zlib"),
                "image": F.Image(shape=(None, None, 3)),
                "sound": F.Audio(sample_rate=8000),
            }
        )
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self.units(self._generate_examples, range(3))}

    def _generate_examples(self, unit: int) -> Any:
        for i in range(unit * 100, unit * 100 + 100):
            yield i, row(i)


class ByTfds(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = Statistics.VERSION
    name = "toy_statistics"
    _info = Statistics._info

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": ((i, row(i)) for i in range(ROWS))}

    def _generate_examples(self) -> Any:
        raise NotImplementedError
