"""Every command is given damaged and impossible files of each kind that it reads or writes.

Whatever they hold, a command either works or prints an error of ours: no traceback, and nothing
but errors of ours in Python. `make soak` tries all cases; `make test` tries a fixed sample of them.
"""

import contextlib
import io
import itertools
import json
import os
import pickle
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds
from click.testing import CliRunner

import my_datasets
from my_datasets.cli.main import cli
from my_datasets.errors import MyDatasetsError

pytestmark = pytest.mark.faults

NAME = "damaged"
# Of all cases, `make test` tries this many.
SAMPLE = 150
PLACES_SAMPLE = 80


class Damaged(my_datasets.Builder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")
    name = NAME

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(4, 4, 3)),
            "label": tfds.features.ClassLabel(names=["no", "yes"]),
            "text": tfds.features.Text(),
            "number": np.float32,
            "numbers": tfds.features.Sequence(np.int64),
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features),
            supervised_keys=("image", "label"), description="Made up.", citation="@misc{made}",
        )  # fmt: skip

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(range(40)), "test": self._generate_examples([50])}

    def _generate_examples(self, rows):
        for row in rows:
            image = np.full((4, 4, 3), row, np.uint8)
            yield row, {"image": image, "label": row % 2, "text": f"text {row}",
                        "number": row / 3, "numbers": list(range(row % 3))}  # fmt: skip


def _version(version: str) -> type[Damaged]:
    attributes = {"VERSION": tfds.core.Version(version), "name": NAME,
                  "RELEASE_NOTES": {version: "New."}}  # fmt: skip
    return type("Made", (Damaged,), attributes, skip_registration=True)


# --- Damage to any file ---------------------------------------------------------------------------


def _pickled() -> bytes:
    array = io.BytesIO()
    np.save(array, np.array([{"a": print}], dtype=object), allow_pickle=True)
    return array.getvalue()


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x20]) + data[middle + 1 :] if data else b"\1"


CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "without its end": lambda data: data[:-1],
    "doubled": lambda data: data * 2,
    "one bit flipped": _flipped,
    "noise": lambda data: random.Random(1).randbytes(max(len(data), 64)),
    "not UTF-8": lambda data: b"\xff\xfe" + data,
    "null": lambda data: b"null",
    "a list": lambda data: b"[]",
    "an object": lambda data: b"{}",
    "a text": lambda data: b'"text"',
    "nested deeply": lambda data: b"[" * 100_000,
    "nested deeply in objects": lambda data: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a large number": lambda data: b"1" + b"0" * 5000,
    "a pickled array": lambda data: _pickled(),
    "a pickle": lambda data: pickle.dumps({"a": 1}),
    "control characters": lambda data: b"\0\x1b[2J\r\n" * 9,
}


def _gone(path: Path) -> None:
    path.unlink()


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def _link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/at/all")


PLACES = {"gone": _gone, "a directory": _directory, "a link to itself": _link_to_itself,
          "a link to nothing": _link_to_nothing}  # fmt: skip
VALUES = [None, True, -1, 0, 1e308, 10**30, "", "x", "../../x", "\0", [], {}, [[]], {"a": {}},
          "9" * 5000, float("nan")]  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Returns a JSON document with a value or two exchanged, removed, or doubled."""
    document = json.loads(data)
    nodes = []

    def walk(parent):
        for key in list(parent) if isinstance(parent, dict) else range(len(parent)):
            nodes.append((parent, key))
            if isinstance(parent[key], (dict, list)):
                walk(parent[key])

    walk(document)
    for parent, key in rng.sample(nodes, min(len(nodes), rng.choice([1, 1, 1, 2]))):
        with contextlib.suppress(KeyError, IndexError):
            if rng.random() < 0.2:
                del parent[key]
            elif rng.random() < 0.1 and isinstance(parent, list):
                parent.append(parent[key])
            else:
                parent[key] = rng.choice(VALUES)
    return json.dumps(document).encode()


def damage(path: Path, how: str) -> None:
    """Damages a file; `how` is a name from above, or `mutation N`."""
    if how in PLACES:
        PLACES[how](path)
    elif how in CONTENTS:
        path.write_bytes(CONTENTS[how](path.read_bytes()))
    else:
        path.write_bytes(mutated(path.read_bytes(), random.Random(how)))


# --- A world of files, and what reads them --------------------------------------------------------


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A data directory with two versions, a store with both, a lock, an export, and a site."""
    world = tmp_path_factory.mktemp("pristine")
    for version in ("1.0.0", "1.1.0"):
        _version(version)(data_dir=world / "data").download_and_prepare(
            build_options=my_datasets.BuildOptions(version_gate=False, workers=1)
        )
    run = CliRunner().invoke
    for version in ("1.0.0", "1.1.0"):
        my_datasets.publish(str(world / "data" / NAME / version), world / "store",
                            version_gate=False)  # fmt: skip
    lock = ["lock", NAME, "--data-dir", str(world / "data"), "--file", str(world / "lock")]
    assert run(cli, lock, catch_exceptions=False).exit_code == 0
    return world


# World-relative patterns of the files of each kind; the largest that matches is damaged.
VERSION_FILES = {
    "info": "data/damaged/1.1.0/dataset_info.json",
    "features": "data/damaged/1.1.0/features.json",
    "manifest": "data/damaged/1.1.0/my_datasets_manifest.json",
    "labels": "data/damaged/1.1.0/label.labels.txt",
    "shard": "data/damaged/1.1.0/damaged-train.tfrecord-00000-of-00001",
    "offsets": "data/damaged/1.1.0/my_datasets_offsets_*.npy",
    "keys": "data/damaged/1.1.0/my_datasets_keys_*.npy",
}
STORE_FILES = {
    "record": "store/damaged/1.1.0/my_datasets_release.json",
    "index": "store/my-datasets/index/damaged.json",
    "store": "store/my-datasets/store.json",
    "stored info": "store/damaged/1.1.0/dataset_info.json",
    "stored features": "store/damaged/1.1.0/features.json",
    "stored manifest": "store/damaged/1.1.0/my_datasets_manifest.json",
    "stored shard": "store/damaged/1.1.0/damaged-train.tfrecord-00000-of-00001",
    "stored offsets": "store/damaged/1.1.0/my_datasets_offsets_*.npy",
}
OTHER_FILES = {"lock": "lock"}
JSON = {"info", "features", "manifest", "record", "index", "store", "stored info",
        "stored features", "stored manifest", "lock"}  # fmt: skip

DATA = ["--data-dir", "{w}/data"]
VERSION = "{w}/data/damaged/1.1.0"
FROM = ["--from", "{w}/store"]
READ_VERSIONS: list[list[str]] = [
    ["list", *DATA], ["info", NAME, *DATA], ["verify", VERSION, "--fast"],
    ["verify", NAME, *DATA, "--workers", "1"], ["verify", VERSION, "--deep", "--workers", "1"],
    ["stats", NAME, *DATA], ["stats", VERSION, "--html", "{w}/stats.html"],
    ["diff", "{w}/data/damaged/1.0.0", VERSION, "--workers", "1"],
    ["export", VERSION, "--to", "parquet", "--output", "{w}/out"],
    ["catalog", "--from", "{w}/data", "--to", "{w}/site", "--workers", "1"],
    ["publish", VERSION, "--to", "{w}/other", "--workers", "1"],
    ["publish", NAME, *DATA, "--to", "{w}/store", "--deep", "--workers", "1"],
    ["bench", NAME, *DATA, "--seconds", "0.1", "--batch-size", "8"],
    ["index", VERSION, "--overwrite"],
    ["lock", NAME, *DATA, "--file", "{w}/new-lock"],
    ["lock", "--check", *DATA, "--file", "{w}/lock"],
    ["pull", NAME, *FROM, *DATA],
]  # fmt: skip
READ_STORES: list[list[str]] = [
    ["ls", *FROM], ["history", NAME, *FROM], ["info", NAME, *FROM],
    ["verify", f"{NAME}:1.1.0", *FROM, "--workers", "1"],
    ["pull", NAME, *FROM, "--data-dir", "{w}/pulled"],
    ["pull", NAME, *FROM, "--data-dir", "{w}/pulled", "--splits", "test"],
    ["catalog", *FROM, "--to", "{w}/site", "--workers", "1"],
    ["gc", *FROM, "--delete", "--yanked"], ["yank", f"{NAME}:1.1.0", *FROM, "-m", "Wrong."],
    ["publish", VERSION, "--to", "{w}/store", "--workers", "1"],
]  # fmt: skip
READ_LOCKS: list[list[str]] = [
    ["lock", "--check", *DATA, "--file", "{w}/lock"],
    ["lock", NAME, *DATA, "--file", "{w}/lock"],
    ["pull", NAME, *FROM, "--data-dir", "{w}/pulled"],
    ["gc", *FROM, "--yanked", "--keep", "{w}/lock"],
]  # fmt: skip


def _loaded(world: Path) -> None:
    list(my_datasets.load(NAME, split="train", data_dir=world / "data").as_numpy_iterator())


def _sourced(world: Path) -> None:
    list(my_datasets.source(NAME, split="train", data_dir=world / "data"))


def _batched(world: Path) -> None:
    list(my_datasets.batches(NAME, batch_size=8, data_dir=world / "data"))


def _piped(world: Path) -> None:
    list(my_datasets.pipeline(NAME, batch_size=8, data_dir=world / "data"))


def _attached(world: Path) -> None:
    release = my_datasets.attach(NAME, world / "store", world / "cache")
    list(my_datasets.batches(release, batch_size=8))


def _loaded_from_store(world: Path) -> None:
    data = my_datasets.load(NAME, split="train", store=world / "store", data_dir=world / "pulled")
    list(data.as_numpy_iterator())


def _adopted(world: Path) -> None:
    version_dir = world / "data" / NAME / "1.1.0"
    with contextlib.suppress(OSError):
        (version_dir / "my_datasets_manifest.json").unlink()
    CliRunner().invoke(cli, ["adopt", str(version_dir)], catch_exceptions=False)


def _built(world: Path) -> None:
    _version("1.1.0")(data_dir=world / "data").download_and_prepare()


def _overwritten(world: Path) -> None:
    config = tfds.download.DownloadConfig(download_mode=tfds.GenerateMode.REUSE_CACHE_IF_EXISTS)
    _version("1.1.0")(data_dir=world / "data").download_and_prepare(download_config=config)


CALLS_ON_VERSIONS = [_built, _overwritten, _adopted, _loaded, _sourced, _batched, _piped]
CALLS_ON_STORES = [_attached, _loaded_from_store]


def cases():
    """Yields what is damaged, how, and what then reads it."""
    kinds = (
        (VERSION_FILES, [*READ_VERSIONS, *CALLS_ON_VERSIONS]),
        (STORE_FILES, [*READ_STORES, *CALLS_ON_STORES]),
        (OTHER_FILES, [*READ_LOCKS, *CALLS_ON_VERSIONS]),
    )
    for files, readers in kinds:
        for kind in files:
            hows = [*CONTENTS, *PLACES]
            if kind in JSON:
                hows += [f"mutation {number}" for number in range(40)]
            yield from itertools.product([kind], hows, readers)


ALL_CASES = list(cases())


@pytest.fixture
def fresh(pristine, tmp_path, monkeypatch):
    """Returns what makes a new copy of the world, which becomes the working directory."""
    numbers = itertools.count()

    def make() -> Path:
        world = tmp_path / str(next(numbers))
        shutil.copytree(pristine, world, symlinks=True)
        monkeypatch.chdir(world)
        monkeypatch.setenv("MY_DATASETS_HOME", str(world / "home"))
        monkeypatch.setenv("MY_DATASETS_LOCK", str(world / "lock"))
        return world

    return make


def complaint(reader, world: Path) -> str | None:
    """Runs a command or a call; returns what is wrong with how it ended, if anything is."""
    if callable(reader):
        try:
            reader(world)
        except Exception as error:
            return _of_error(error)
        return None
    arguments = [one.format(w=world) for one in reader]
    result = CliRunner().invoke(cli, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return _of_error(result.exception)
    if "Traceback (most recent call last)" in result.output:
        return result.output
    return None


def _of_error(error: BaseException) -> str | None:
    if isinstance(error, MyDatasetsError):
        if not str(error).strip():
            return f"{type(error).__name__} says nothing"
        return None
    # tf.data raises classes of its own, whose messages have ours.
    if type(error).__module__.startswith("tensorflow") and "Error: " in str(error):
        return None
    return f"{type(error).__name__}: {str(error)[:500]}"


def check(some_cases, fresh) -> None:
    files = {**VERSION_FILES, **STORE_FILES, **OTHER_FILES}
    wrong = []
    for kind, how, reader in some_cases:
        world = fresh()
        path = max(world.glob(files[kind]), key=lambda one: one.stat().st_size)
        damage(path, how)
        name = reader.__name__ if callable(reader) else " ".join(reader)
        if (said := complaint(reader, world)) is not None:
            wrong.append(f"{kind}, {how}, {name}: {said}")
        os.chdir("/")
        shutil.rmtree(world)
    assert not wrong, f"{len(wrong)} of {len(some_cases)}:\n" + "\n".join(wrong)


def test_nothing_is_wrong_with_what_is_not_damaged(fresh):
    for reader in [*READ_VERSIONS, *READ_STORES, *READ_LOCKS]:
        world = fresh()
        arguments = [one.format(w=world) for one in reader]
        result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert result.exit_code == 0, (reader, result.output)
    for call in [*CALLS_ON_VERSIONS, *CALLS_ON_STORES]:
        call(fresh())


def test_no_command_ends_in_a_traceback(fresh):
    check(random.Random(0).sample(ALL_CASES, SAMPLE), fresh)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_no_command_ends_in_a_traceback_whatever_is_damaged(fresh, part):
    check(ALL_CASES[part::16], fresh)


# --- Impossible places ----------------------------------------------------------------------------


def _places(world: Path) -> dict[str, str]:
    (world / "file").write_text("mine")
    (world / "folder").mkdir()
    (world / "folder" / "mine").write_text("mine")
    return {
        "a missing folder": str(world / "missing" / "deep" / "x.json"),
        "below a file": str(world / "file" / "x"),
        "a file": str(world / "file"),
        "a folder with something in it": str(world / "folder"),
        "a full device": _full_device(world / "full"),
        "below a device": str(world / "full" / "x"),
        "where the kernel makes nothing": "/proc/self/x/y",
        "too long": str(world / ("x" * 300)),
        "a NUL": "x\0y",
        "nothing": "",
        "not UTF-8": os.fsdecode(b"x\xff"),
        "a link to itself": _link(world / "loop"),
    }


def _full_device(path: Path) -> str:
    """Makes what /dev/full is: a command that replaces it must not replace the machine's own."""
    with contextlib.suppress(PermissionError):
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    return str(path)


def _link(path: Path) -> str:
    path.symlink_to(path)
    return str(path)


PLACE_NAMES = ["a missing folder", "below a file", "a file", "a folder with something in it",
               "a full device", "below a device", "where the kernel makes nothing", "too long",
               "a NUL", "nothing", "not UTF-8", "a link to itself"]  # fmt: skip
WRITERS: list[list[str]] = [
    ["build", "digits", "--data-dir", "{p}"],
    ["list", "--data-dir", "{p}"],
    ["info", NAME, "--data-dir", "{p}"],
    ["info", NAME, "--from", "{p}"],
    ["verify", "{p}"],
    ["verify", VERSION, "--html", "{p}"],
    ["verify", f"{NAME}:1.1.0", *FROM, "--trusted-keys", "{p}"],
    ["stats", NAME, *DATA, "--html", "{p}"],
    ["stats", NAME, *DATA, "--plot", "{p}"],
    ["diff", "{w}/data/damaged/1.0.0", VERSION, "--workers", "1", "--html", "{p}"],
    ["diff", "{p}", VERSION],
    ["export", VERSION, "--to", "parquet", "--output", "{p}"],
    ["export", VERSION, "--to", "parquet", "--output", "{p}", "--overwrite"],
    ["catalog", "--from", "{w}/data", "--to", "{p}", "--workers", "1", "--no-examples"],
    ["catalog", "--from", "{p}", "--to", "{w}/site"],
    ["publish", VERSION, "--to", "{p}"],
    ["publish", VERSION, "--to", "{w}/other", "--catalog", "{p}"],
    ["publish", VERSION, "--to", "{w}/other", "--sign-key", "{p}"],
    ["pull", NAME, *FROM, "--data-dir", "{p}"],
    ["pull", NAME, "--from", "{p}", "--data-dir", "{w}/pulled"],
    ["bench", NAME, *DATA, "--seconds", "0.1", "--batch-size", "8", "--output", "{p}"],
    ["bench", NAME, *DATA, "--seconds", "0.1", "--batch-size", "8", "--plot", "{p}"],
    ["index", "{p}"],
    ["adopt", "{p}"],
    ["lock", NAME, *DATA, "--file", "{p}"],
    ["ls", "--from", "{p}"],
    ["history", NAME, "--from", "{p}"],
    ["gc", "--from", "{p}"],
    ["gc", *FROM, "--yanked", "--keep", "{p}"],
    ["yank", f"{NAME}:1.1.0", "--from", "{p}", "-m", "x"],
    ["sign", "--to", "{w}/store", "--sign-key", "{p}"],
    ["check", "{p}"],
    ["checksums", "digits", "--download-dir", "{p}"],
    ["new", "made", "--from", "{p}", "--package", "{w}/ours", "--yes"],
    ["new", "made", "--from", "{w}/lock", "--package", "{p}", "--yes"],
]  # fmt: skip
# Read, this device has no end.
NOT_READ = {"--sign-key", "--trusted-keys", "--keep", "check", "new"}
ALL_PLACES = [
    (name, writer)
    for name, writer in itertools.product(PLACE_NAMES, WRITERS)
    if name != "a full device" or not NOT_READ & {*writer}
]


def check_places(some, fresh) -> None:
    wrong = []
    for name, writer in some:
        world = fresh()
        place = _places(world)[name]
        arguments = [one.replace("{p}", place) for one in writer]
        if (said := complaint(arguments, world)) is not None:
            wrong.append(f"{name}, {' '.join(writer)}: {said}")
        if not (world / "folder" / "mine").exists():
            wrong.append(f"{name}, {' '.join(writer)}: the user's file is gone")
        os.chdir("/")
        shutil.rmtree(world)
    assert not wrong, f"{len(wrong)} of {len(some)}:\n" + "\n".join(wrong)


def test_no_impossible_place_ends_in_a_traceback(fresh):
    check_places(random.Random(0).sample(ALL_PLACES, PLACES_SAMPLE), fresh)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_impossible_place_at_all_ends_in_a_traceback(fresh, part):
    check_places(ALL_PLACES[part::4], fresh)
