"""Versions, releases, locks and states that an earlier state of the code stored keep working."""

import json
import shutil
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.errors import LockError, PlanError
from my_datasets.publishing.model.signing import TrustedKeys
from my_datasets.verification.verifier import Level, verify
from tests.golden.format_1 import FORMATS, OPTIONS, numbers

STORED = Path(__file__).parent / "golden/format_1"
STATES = json.loads((STORED / "states.json").read_text())


@pytest.fixture
def golden(tmp_path, monkeypatch):
    copied = Path(shutil.copytree(STORED, tmp_path / "golden"))
    monkeypatch.chdir(copied)  # where its lock is
    return copied


@pytest.mark.parametrize("form", FORMATS)
def test_versions_are_read_and_verified(golden, form):
    (golden / "datasets.lock").unlink()  # of the TFRecord shards
    assert verify(golden / form / "golden/1.0.0", level=Level.DEEP).issues == ()
    if form == "tfrecord":
        examples = my_datasets.source("golden", split="train", data_dir=golden / form)
    else:
        builder = tfds.builder_from_directory(golden / form / "golden/1.0.0")
        examples = builder.as_data_source("train")
    assert sorted(int(one["number"]) for one in examples) == list(range(5))


def test_locks_hold(golden):
    batches = my_datasets.batches("golden:1.*.*", data_dir=golden / "tfrecord", batch_size=5)
    assert sorted(numbers(batches)[0]) == list(range(5))
    (golden / "tfrecord/golden/1.0.0/parity.labels.txt").write_text("odd\neven\n")
    with pytest.raises(LockError, match="features, labels or supervised keys"):
        my_datasets.batches("golden:1.*.*", data_dir=golden / "tfrecord", batch_size=5)


def test_signed_releases_are_pulled(golden, tmp_path):
    keys = TrustedKeys.read(golden / "key.pub")
    pulled = my_datasets.pull("golden:1.*.*", golden / "store", tmp_path / "here", keys=keys)
    assert verify(Path(pulled.path), level=Level.DEEP).issues == ()


@pytest.mark.parametrize("name", OPTIONS)
def test_states_resume_where_they_were(golden, name):
    from my_datasets.input_pipeline.order.state import State

    stored = STATES[name]
    state = State.from_json(json.dumps(stored["state"]))
    options = {"split": "train", "data_dir": golden / "tfrecord", "batch_size": 2, **OPTIONS[name]}
    assert numbers(my_datasets.batches("golden", state=state, **options)) == stored["rest"]
    with pytest.raises(PlanError):
        my_datasets.batches("golden", state=state, **{**options, "split": "test"})
