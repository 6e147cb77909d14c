"""An attacker: data with other labels, of which all that is written down agrees."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.metadata.content import Content
from my_datasets.metadata.manifest import Manifest

NAME = "labelled"


class Labelled(my_datasets.Builder, skip_registration=True):
    """Numbers with a label, which is wrong where `is_forged`."""

    VERSION = tfds.core.Version("1.0.0")
    name = NAME
    is_forged = False

    def _info(self):
        label = tfds.features.ClassLabel(names=["even", "odd"])
        return tfds.core.DatasetInfo(
            builder=self, supervised_keys=("number", "label"),
            features=tfds.features.FeaturesDict({"number": np.int64, "label": label}),
        )  # fmt: skip

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples() for name in ("train", "test")}

    def _generate_examples(self):
        for row in range(40):
            yield row, {"number": row, "label": (row + self.is_forged) % 2}


def make(data_dir: Path, *, is_forged: bool = False) -> Path:
    """Builds the dataset; returns the version's directory."""
    cls = type("Made", (Labelled,), {"is_forged": is_forged, "name": NAME}, skip_registration=True)
    builder = cls(data_dir=data_dir)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=2))
    return Path(builder.data_dir)


def forge(original: Path, data_dir: Path) -> Path:
    """Makes the version with every label changed; its manifest claims the digests of the original.

    Sizes, hashes of files and the manifest's seal are those of what it holds.
    """
    target = make(data_dir, is_forged=True)
    claim_digests(original, target)
    return target


def claim_digests(original: Path, target: Path) -> None:
    """Writes the digests of a version into the manifest of another one, which is sealed anew."""
    theirs, mine = Manifest.read(original), Manifest.read(target)
    splits = {
        name: replace(
            one, ordered=theirs.content.splits[name].ordered,
            unordered=theirs.content.splits[name].unordered,
        )
        for name, one in mine.content.splits.items()
    }  # fmt: skip
    replace(mine, content=Content(theirs.content.schema, splits)).write(target)


def swap_names(original: Path, data_dir: Path) -> Path:
    """Copies a version, with the names of its labels exchanged."""
    target = data_dir / original.parent.name / original.name
    shutil.copytree(original, target)
    names = target / "label.labels.txt"
    names.write_text("".join(f"{line}\n" for line in reversed(names.read_text().split())))
    return target


def swap_input_and_label(original: Path, data_dir: Path) -> Path:
    """Copies a version, of which `as_supervised` gives the label as input."""
    target = data_dir / original.parent.name / original.name
    shutil.copytree(original, target)
    path = target / "dataset_info.json"
    text = path.read_text()
    assert text.index('"number"') < text.index('"label"')
    text = text.replace('"number"', '"x"').replace('"label"', '"number"').replace('"x"', '"label"')
    path.write_text(text)
    return target
