"""The lists of modules in docs/architecture.md are those that an example's bytes pass."""

import re
import sys
import threading

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.building.engines import local

# Through these all passes, and nothing of an example is decided there.
_ELSEWHERE = {
    "building.journal", "building.options", "building.progress",
    "building.units", "builders.base", "core.processes", "input_pipeline.order.state",
    "input_pipeline.plan.plan", "input_pipeline.plan.stages", "input_pipeline.stopwatch",
    "metadata.content", "metadata.features", "metadata.sidecars", "storage.disk_space",
    "storage.regular_files",
}  # fmt: skip


class Traced(my_datasets.Builder):
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "The first."}

    def _info(self):
        features = {"number": np.int64, "text": tfds.features.Text()}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number in range(100):
            yield number, {"number": number, "text": str(number)}


def modules_of(work):
    """Returns the modules of the package of which a function is called meanwhile."""
    found = set()

    def note(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("my_datasets."):
            found.add(name.removeprefix("my_datasets."))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found - _ELSEWHERE


@pytest.fixture(scope="module")
def lists(root):
    text = (root / "docs/architecture.md").read_text("utf-8")
    section = text.partition("## The way of an example's bytes")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [{line.split()[0] for line in block.splitlines()} for block in blocks]


def test_the_way_of_an_examples_bytes(lists, tmp_path, monkeypatch):
    ways = []
    build = local.build

    def traced(*args, **options):
        results = []
        ways.append(modules_of(lambda: results.append(build(*args, **options))))
        return results[0]

    monkeypatch.setattr(local, "build", traced)
    options = my_datasets.BuildOptions(workers=1)
    Traced(data_dir=tmp_path).download_and_prepare(build_options=options)
    batches = my_datasets.batches("traced", data_dir=tmp_path, split="train", batch_size=10)
    ways.append(modules_of(lambda: next(iter(batches))))
    assert ways == lists
