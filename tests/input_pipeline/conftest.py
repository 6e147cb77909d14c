"""Prepared datasets that the tests of input pipelines read."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.building.options import BuildOptions
from tests.datasets.archives import photograph

ROWS = 250


def everything(i):
    """Returns an example with every kind of feature, the i-th one of them."""
    rng = np.random.default_rng(i)
    pixels = rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    return {
        "number": np.float32(i / 7), "wide": i / 3 - 20, "whole": i - 100, "byte": i % 256,
        "bits": 2**63 + i, "flag": i % 3 == 0, "label": i % 4, "text": f"text {i}" * (i % 4),
        "binary": bytes([i % 256]) * (i % 9), "maybe": None if i % 3 else i / 4,
        "maybe_text": None if i % 2 else str(i),
        "vector": rng.normal(size=3).astype(np.float32), "matrix": pixels[:, :, 0],
        "rows": rng.normal(size=(i % 4, 2)).astype(np.float32),
        "packed": pixels[:2], "packed_any": rng.integers(0, 9, (i % 3, i % 5)).astype(np.int16),
        "list": list(range(i % 5)), "three": [i, i + 1, i + 2],
        "texts": ["x" * n for n in range(i % 3)], "words": [f"w{n}" for n in range(i % 4)],
        "pairs": [{"a": n, "b": str(n)} for n in range(i % 3)],
        "nested": [[i] * n for n in range(i % 4)], "inner": {"x": i, "y": {"z": str(i)}},
        "grey": pixels[:, :, :1], "wide_image": (pixels[:, :, :1].astype(np.uint16) << 8) + i,
        "depth": rng.normal(size=(4, 3, 1)).astype(np.float32), "frames": [pixels, pixels[::-1]],
        "box": tfds.features.BBox(0.0, 0.25, 0.5, 1.0), "speech": {"en": "a", "fr": str(i)},
        "sound": rng.integers(-99, 99, i % 7).astype(np.int64),
    }  # fmt: skip


FEATURES = {
    "number": np.float32, "wide": np.float64, "whole": np.int64, "byte": np.uint8,
    "bits": np.uint64, "flag": np.bool_, "label": tfds.features.ClassLabel(names=list("abcd")),
    "text": tfds.features.Text(), "binary": tfds.features.Tensor(shape=(), dtype=np.object_),
    "maybe": tfds.features.Scalar(np.float32, optional=True),
    "maybe_text": tfds.features.Scalar(np.str_, optional=True),
    "vector": tfds.features.Tensor(shape=(3,), dtype=np.float32),
    "matrix": tfds.features.Tensor(shape=(6, 5), dtype=np.uint8),
    "rows": tfds.features.Tensor(shape=(None, 2), dtype=np.float32),
    "packed": tfds.features.Tensor(shape=(2, 5, 3), dtype=np.uint8, encoding="zlib"),
    "packed_any": tfds.features.Tensor(shape=(None, None), dtype=np.int16, encoding="bytes"),
    "list": tfds.features.Sequence(np.int32), "three": tfds.features.Sequence(np.int64, length=3),
    "texts": tfds.features.Sequence(tfds.features.Text()),
    "words": tfds.features.Tensor(shape=(None,), dtype=np.str_),
    "pairs": tfds.features.Sequence({"a": np.int64, "b": tfds.features.Text()}),
    "nested": tfds.features.Sequence(tfds.features.Sequence(np.int64)),
    "inner": {"x": np.int16, "y": {"z": tfds.features.Text()}},
    "grey": tfds.features.Image(shape=(6, 5, 1)),
    "wide_image": tfds.features.Image(shape=(6, 5, 1), dtype=np.uint16, encoding_format="png"),
    "depth": tfds.features.Image(shape=(4, 3, 1), dtype=np.float32),
    "frames": tfds.features.Video(shape=(2, 6, 5, 3)), "box": tfds.features.BBoxFeature(),
    "speech": tfds.features.Translation(["en", "fr"]),
    "sound": tfds.features.Audio(shape=(None,)),
}  # fmt: skip


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """A data directory with the dataset `everything`, and `photos` of different sizes."""
    root = tmp_path_factory.mktemp("pipeline_data")

    class Everything(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.2.0")

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(FEATURES),
                supervised_keys=("vector", "label"),
            )

        def _split_generators(self, dl_manager):
            return {
                "train": ((i, everything(i)) for i in range(ROWS)),
                "test": ((i, everything(i)) for i in range(ROWS, ROWS + 20)),
            }

    class Photos(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
                "label": tfds.features.ClassLabel(names=["a", "b"]),
            }
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(features),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, dl_manager):
            import io

            return {
                "train": (
                    (i, {"image": io.BytesIO(photograph(i, (60 + i, 90 - i))), "label": i % 2})
                    for i in range(40)
                )
            }

    for builder in (Everything(data_dir=root), Photos(data_dir=root)):
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(num_shards=3),
            build_options=BuildOptions(workers=1),
        )
    return root
