"""A named pipe in place of a file of a version: commands end, and say so."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from my_datasets.storage.regular_files import open_regular, read_regular
from tests.publishing import forging

# Each runs in a process of its own: a thread that waits for a pipe cannot be ended.
_READ = """
import contextlib, sys
from pathlib import Path
import my_datasets
from my_datasets.metadata.content import labels_of
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.resolving.lock import Lock
from my_datasets.metadata.manifest import Manifest
from my_datasets.builders.from_directory import builder_from_directory
from my_datasets.publishing.publisher import publish
from my_datasets.records import index
from my_datasets.records.index import ShardKeys
from my_datasets.verification.verifier import verify

def scan(path):
    for shard in sorted(path.glob("*.tfrecord-0000?-of-0000?")):
        for read in (index.matches, index.read, index.scan, lambda one: ShardKeys(one, 20).read()):
            with contextlib.suppress(OSError, my_datasets.MyDatasetsError):
                read(shard)

path = Path(sys.argv[1])
for read in (
    lambda: verify(path), lambda: builder_from_directory(path),
    lambda: VersionMetadata(path).schema_digest,
    lambda: Manifest.read(path), lambda: list(my_datasets.batches(path, split="train")),
    lambda: publish(str(path), path.parents[2] / "store"), lambda: scan(path),
    lambda: labels_of(path, ["label"]), lambda: Lock.read(path / "dataset_info.json"),
):
    with contextlib.suppress(my_datasets.MyDatasetsError, FileNotFoundError):
        read()
print([one.node for one in verify(path).issues])
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return forging.make(tmp_path_factory.mktemp("named_pipes"))


@pytest.mark.parametrize("kind", [
    "dataset_info.json", "features.json", "label.labels.txt", "my_datasets_manifest.json",
    "my_datasets_offsets_*.npy", "my_datasets_keys_*.npy", "labelled-train.tfrecord-00000-*",
])  # fmt: skip
def test_nothing_waits_for_a_named_pipe(original, tmp_path, kind, root):
    version = shutil.copytree(original, tmp_path / "data" / "labelled" / "1.0.0")
    path = sorted(version.glob(kind))[0]
    path.unlink()
    os.mkfifo(path)
    done = subprocess.run(
        [sys.executable, "-c", _READ, version], cwd=root, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() != "[]"


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(tmp_path / "link", 4)
