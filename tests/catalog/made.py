"""Datasets of each kind that pages show, and one in which everything that can be is hostile."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.publisher import publish
from tests.catalog.markup import HOSTILE

F = tfds.features


class _Made(my_datasets.Builder, skip_registration=True):
    """A dataset of a few examples; subclasses say what is in them."""

    VERSION = tfds.core.Version("1.0.0")
    about = ""
    licence = "CC BY 4.0"
    citation = "@misc{made, title={Made up}}"
    features: dict[str, Any] = {}
    supervised: Any = None
    rows = 20

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=F.FeaturesDict(dict(self.features)), description=self.about,
            license=self.licence, citation=self.citation, supervised_keys=self.supervised,
            homepage="https://example.org/data",
        )  # fmt: skip

    def _split_generators(self, dl_manager):
        cut = self.rows * 4 // 5
        return {"train": self._rows(range(cut)), "test": self._rows(range(cut, self.rows))}

    def _rows(self, rows):
        for row in rows:
            yield row, self.example(row)

    def _generate_examples(self):
        raise NotImplementedError

    def example(self, row):
        raise NotImplementedError


class Shapes(_Made, skip_registration=True):
    """Pictures with bounding boxes."""

    name = "shapes"
    RELEASE_NOTES = {"1.0.0": "First release."}
    about = (
        "# shapes\n\nCircles and squares on a ground of two colours, each with a box around it.\n\n"
        "## How they were made\n\nBy a program, see [its page](https://example.org/how)."
    )
    features = {
        "image": F.Image(shape=(None, None, 3), doc="A picture."),
        "objects": F.Sequence(
            {"bbox": F.BBoxFeature(), "label": F.ClassLabel(names=["circle", "square"])}
        ),
    }

    def example(self, row):
        rng = np.random.default_rng(row)
        height, width = 180 + 10 * (row % 3), 240
        image = np.empty((height, width, 3), np.uint8)
        image[:] = rng.integers(40, 120, 3) + np.linspace(0, 60, width)[None, :, None]
        y, x = np.mgrid[:height, :width]
        objects = []
        for _ in range(1 + row % 3):
            size = int(rng.integers(20, 40))
            cy, cx = int(rng.integers(45, height - 45)), int(rng.integers(45, width - 45))
            label = int(rng.integers(2))
            inside = (y - cy) ** 2 + (x - cx) ** 2 < size**2 if label == 0 else (
                (abs(y - cy) < size) & (abs(x - cx) < size)
            )  # fmt: skip
            image[inside] = rng.integers(120, 255, 3)
            box = F.BBox(
                (cy - size) / height, (cx - size) / width, (cy + size) / height, (cx + size) / width
            )
            objects.append({"bbox": box, "label": label})
        return {"image": image, "objects": objects}


class Tones(_Made, skip_registration=True):
    """Sounds."""

    name = "tones"
    about = "Tones of one or two seconds, at 8,000 samples a second."
    licence = "CC0 1.0"
    features = {
        "audio": F.Audio(sample_rate=8000, doc="A tone that fades."),
        "pitch": F.ClassLabel(names=["low", "middle", "high"]),
    }
    supervised = ("audio", "pitch")
    rows = 10

    def example(self, row):
        times = np.arange(8000 * (1 + row % 2)) / 8000
        tone = np.sin(2 * np.pi * (220 * 2 ** (row % 3)) * times) * np.exp(-2 * times)
        return {"audio": (tone * 20000).astype(np.int64), "pitch": row % 3}


class Stories(_Made, skip_registration=True):
    """Texts, of which some are long."""

    name = "stories"
    about = "Short stories and long ones."
    licence = ""
    features = {"text": F.Text(doc="The story."), "stars": np.int32}

    def example(self, row):
        words = ["Once", "upon", "a", "time", "nobody", "could", "load", "a", "dataset."]
        return {"text": " ".join((words * (1 + 12 * (row % 3)))[: 10 + 90 * row]), "stars": row % 5}


class Weights(_Made, skip_registration=True):
    """A table, of which there are several versions."""

    name = "weights"
    RELEASE_NOTES = {
        "1.0.0": "First release.",
        "1.1.0": "**Heights**, too.",
        "2.0.0": "Weights in grams; those of the first ten animals were wrong.",
    }
    about = "What animals weigh."
    rows = 200

    @property
    def features(self):
        more = {"height": np.float32} if self.version >= "1.1.0" else {}
        kind = F.ClassLabel(names=["cat", "dog", "eel"])
        return {"kind": kind, "weight": np.float32, "name": F.Text(), **more}

    def example(self, row):
        rng = np.random.default_rng(row)
        scale = 1000 if self.version >= "2.0.0" else 1
        given = {
            "kind": row % 3, "weight": scale * rng.gamma(3, 2), "name": f"animal {row}",
            "height": rng.normal(30, 4),
        }  # fmt: skip
        return {name: given[name] for name in self.features}


class Hostile(_Made, skip_registration=True):
    """A dataset whose author means no good."""

    name = "hostile"
    RELEASE_NOTES = {"1.0.0": "\n\n".join(HOSTILE)}
    about = "\n\n".join(
        [*HOSTILE, "[click](javascript:alert(1))", "![x](https://evil.example/x.png)"]
    )
    licence = HOSTILE[0]
    citation = "</code></pre>" + HOSTILE[0]
    features = {
        "text": F.Text(doc=HOSTILE[1]),
        "label": F.ClassLabel(names=[one.replace("\x00", "") for one in HOSTILE]),
        "image": F.Image(shape=(8, 8, 3)),
    }

    def example(self, row):
        return {
            "text": HOSTILE[row % len(HOSTILE)] * (1 + 20 * (row % 2)),
            "label": row % len(HOSTILE),
            "image": np.full((8, 8, 3), row, np.uint8),
        }


ALL = (Shapes, Tones, Stories, Hostile)


def prepare(data_dir: Path) -> None:
    """Builds all of them, and three versions of the table."""
    for cls in ALL:
        cls(data_dir=data_dir).download_and_prepare()
    for version in Weights.RELEASE_NOTES:
        attributes = {"VERSION": tfds.core.Version(version), "name": Weights.name}
        cls = type("Version", (Weights,), attributes, skip_registration=True)
        cls(data_dir=data_dir).download_and_prepare()


def publish_all(data_dir: Path, store: Path, scratch: Path, **options: Any) -> None:
    """Publishes what is prepared, oldest versions first."""
    versions = sorted(path.parent for path in data_dir.glob("*/*/dataset_info.json"))
    for version in versions:
        publish(str(version), store, memory=RollbackState(scratch), **options)
