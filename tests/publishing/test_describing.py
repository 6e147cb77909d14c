"""What is known of a release before it is pulled."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from my_datasets.cli.commands.inspect import info
from my_datasets.errors import CorruptReleaseError
from my_datasets.publishing.publisher import publish
from my_datasets.publishing.resolve_release import describe
from tests.publishing import made
from tests.publishing.web import serving

KINDS = tuple(f"kind {i}" for i in range(12))
HOSTILE = "Fine.\x1b[2J\x1b]0;gone\x07 [bold]really[/bold]"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    class Hostile(made.Released, skip_registration=True):
        name = made.NAME

        def _info(self):
            label = tfds.features.ClassLabel(names=list(KINDS))
            features = {"number": np.int64, "noise": tfds.features.Text(), "label": label}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features), description=HOSTILE,
                license="CC0", homepage="https://data.example.org/", citation="@misc{a}",
            )  # fmt: skip

    directory = tmp_path_factory.mktemp("described")
    version = made.make(
        directory / "built", base=Hostile, more={"label": np.int64}, rows=2, shards=1
    )
    publish(str(version), directory / "store")
    return directory / "store"


def test_only_metadata_come(store):
    with serving(store) as (url, asked):
        found = describe("released:1.*.*", url)
    assert not [path for _, path, _ in asked if "tfrecord" in path]
    (label, *_) = found.about.features
    assert (label.name, label.class_names, label.classes) == ("label", KINDS, len(KINDS))
    assert found.about.licence == "CC0"
    assert json.loads(json.dumps(found.to_json()))["urls"] == ["https://data.example.org/"]
    assert found.splits["train"].examples == 2


def test_the_terminal_obeys_nothing_in_it(store, capsys):
    info.show_release(describe("released", store))
    told = capsys.readouterr().out
    assert "[bold]really[/bold]" in told
    assert all(one.isprintable() or one == "\n" for one in told)


def test_altered_metadata_are_refused(store, tmp_path):
    other = shutil.copytree(store, tmp_path / "other")
    path = other / "released/1.0.0/dataset_info.json"
    path.write_bytes(path.read_bytes().replace(b"CC0", b"CC9"))
    with pytest.raises(CorruptReleaseError, match=r"dataset_info\.json in .* is not what was"):
        describe("released", other)


def test_neither_tensorflow_nor_tfds_is_needed(store):
    script = (
        "import sys; from my_datasets.publishing.resolve_release import describe\n"
        f"describe('released', {str(store)!r})\n"
        "print({'tensorflow', 'tensorflow_datasets', 'apache_beam'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
