"""A reader who has TFDS and nothing else, polling while others publish: nothing, or all of it."""

import os
import subprocess
import sys
import time

import pytest

from my_datasets.publishing.publisher import publish
from my_datasets.storage.backends.gcs import GcsStore
from my_datasets.storage.backends.local import LocalStore
from tests.publishing import made
from tests.publishing.google import leading_to

pytestmark = pytest.mark.faults

# Says what it finds, each time: `absent`, or the sums of all numbers in both splits.
READER = """
import sys
import tensorflow_datasets as tfds
assert "my_datasets" not in sys.modules
root, version = sys.argv[1:]
def look():
    try:
        builder = tfds.builder_from_directory(f"{root}/released/{version}")
    except Exception as error:
        # Which is how TFDS says that there is no dataset.
        if any(name in str(error) for name in ("dataset_info.json", "features.json")):
            return "absent"
        raise
    sums = {}
    for split in builder.info.splits:
        data = tfds.as_numpy(builder.as_dataset(split=split))
        sums[split] = sum(int(one["number"]) for one in data)
    _, info = tfds.load("released", data_dir=root, with_info=True)
    assert str(info.version) == version
    return str(sorted(sums.items()))
print("ready", flush=True)
while True:
    try:
        print(look(), flush=True)
    except Exception as error:
        print("wrong", type(error).__name__, str(error).replace("\\n", " ")[:300], flush=True)
"""
TRAIN = sum(range(made.ROWS))
WHOLE = str([("test", sum(range(made.ROWS, made.ROWS + 10))), ("train", TRAIN)])


@pytest.fixture
def where(request, tmp_path):
    """A store's address, the same for TFDS, and TFDS's environment."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if request.param == "local":
        yield str(tmp_path / "store"), str(tmp_path / "store"), environment
        return
    bucket = request.getfixturevalue("gcs_bucket")
    with leading_to(os.environ["STORAGE_EMULATOR_HOST"], tmp_path) as leading:
        yield f"{bucket}/plain", "gs://releases/plain", {**environment, **leading}


def slowly(method):
    def slow(*arguments):
        time.sleep(0.1)
        return method(*arguments)

    return slow


@pytest.mark.parametrize("where", ["local", "gcs"], indirect=True)
def test_it_sees_nothing_or_all(where, built, monkeypatch):
    address, seen_at, environment = where
    monkeypatch.setattr(GcsStore, "_copy", slowly(GcsStore._copy))
    monkeypatch.setattr(LocalStore, "create", slowly(LocalStore.create))
    monkeypatch.setattr("my_datasets.storage.backends.bucket._AT_ONCE", 1)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, seen_at, "1.0.0"], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert reader.stdout.readline() == "ready\n"
        looks = [reader.stdout.readline().strip() for _ in range(2)]
        publish(str(built()), address)
        while looks[-1] == "absent":
            looks.append(reader.stdout.readline().strip())
    finally:
        reader.kill()
        reader.communicate()
    assert set(looks) == {"absent", WHOLE}
    assert looks == sorted(looks, key=lambda look: look == WHOLE)
