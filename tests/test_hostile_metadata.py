"""A version whose metadata would make TFDS run code, read elsewhere, or take all memory.

It goes through every entry point and command: none may import the module that the metadata name,
and each ends in one of our errors.
"""

import ast
import contextlib
import dataclasses
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import my_datasets
from my_datasets.cli.main import cli
from my_datasets.errors import (
    CorruptReleaseError,
    CorruptShardError,
    LockError,
    MyDatasetsError,
    SplitNotFoundError,
    UnregisteredFeatureError,
)
from my_datasets.metadata import feature_classes, manifest, recorded_files
from my_datasets.metadata.dataset_info import MALFORMED, dataset_info
from my_datasets.metadata.manifest import Manifest
from my_datasets.publishing.model import record
from my_datasets.publishing.model.record import Record
from my_datasets.publishing.model.signed_json import parse_signed_json
from my_datasets.resolving.lock import Lock
from my_datasets.verification.verifier import Level, verify
from tests.publishing.made import NAME, Released, make
from tests.storage.test_json_files import HOSTILE

MODULE = "module_with_a_side_effect"
EVIL = f"{MODULE}.Feature"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The directory of a version that nothing is wrong with."""
    return make(tmp_path_factory.mktemp("good"), shards=1, rows=4, size=64)


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module that leaves a file when it is imported."""
    trace = tmp_path / "imported"
    (tmp_path / f"{MODULE}.py").write_text(
        f"import pathlib\npathlib.Path({str(trace)!r}).write_text('')\n"
        "import tensorflow_datasets as tfds\nclass Feature(tfds.features.Text): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield trace
    assert not trace.exists()
    assert MODULE not in sys.modules


def planted(good, data_dir, **named) -> Path:
    """A copy whose metadata name the module everywhere."""
    version = data_dir / NAME / "1.0.0"
    shutil.copytree(good, version)
    features = json.loads((version / "features.json").read_text())
    features["featuresDict"]["features"]["noise"]["pythonClassName"] = EVIL
    (version / "features.json").write_text(json.dumps(features))
    info = json.loads((version / "dataset_info.json").read_text())
    info["moduleName"] = MODULE
    (version / "dataset_info.json").write_text(json.dumps({**info, **named}))
    recorded(version)
    return version


def recorded(version):
    """Has the manifest say the same as the metadata, as an attacker would."""
    made = Manifest.read(version)
    replace(made, metadata_copy=recorded_files.of_version(version)).write(version)


CALLS = {
    "load": lambda path, data: my_datasets.load(f"{NAME}:1.0.0", data_dir=data),
    "load any": lambda path, data: my_datasets.load(NAME, data_dir=data),
    "load a wildcard": lambda path, data: my_datasets.load(f"{NAME}:1.*.*", data_dir=data),
    "pipeline": lambda path, data: my_datasets.pipeline(path, batch_size=2),
    "batches": lambda path, data: next(iter(my_datasets.batches(path, batch_size=2))),
    "source": lambda path, data: my_datasets.source(path)[0],
    "plan": lambda path, data: my_datasets.plan(path),
    "stream": lambda path, data: my_datasets.stream("kafka://none/topic", features=path),
    "publish": lambda path, data: my_datasets.publish(str(path), data / "store"),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_entry_point_imports_what_metadata_name(name, good, trap, tmp_path):
    version = planted(good, tmp_path / "data")
    with pytest.raises(MyDatasetsError) as raised:
        CALLS[name](version, tmp_path / "data")
    if name not in ("publish",):
        assert isinstance(raised.value, UnregisteredFeatureError)
    assert EVIL in str(raised.value)


@pytest.mark.parametrize("level", list(Level))
def test_verify_says_so(level, good, trap, tmp_path):
    found = verify(planted(good, tmp_path / "data"), level=level, workers=1)
    (issue,) = [one for one in found.issues if one.code == "unregistered-feature"]
    assert EVIL in issue.problem
    assert not found.is_good


LONG = "evil_" * 40_000


def lengthened(value):
    """Yields a document with one text, and then with one name of a member, that is very long."""
    if isinstance(value, str):
        yield LONG
        yield f"{LONG}.{value}"
    if not isinstance(value, (dict, list)):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(value, dict):
            yield {LONG if name == key else name: one for name, one in value.items()}
            yield {**value, LONG: inner}
        for changed in lengthened(inner):
            copied = value.copy()
            copied[key] = changed
            yield copied


def why_not(reader):
    """What our error says that a reader raises; nothing if it raises none."""
    try:
        reader()
    except MyDatasetsError as error:
        return [str(error)]
    return []


def all_said(version):
    """What is said of a version by those who read its metadata."""
    readers = (Record.of, feature_classes.read_features, dataset_info, Manifest.read)
    issues = verify(version, level=Level.FAST).issues
    return [str(one) for one in issues] + [
        said for reader in readers for said in why_not(lambda one=reader: one(version))
    ]


@pytest.mark.parametrize(
    "file", ["features.json", "dataset_info.json", manifest.FILE_NAME, record.FILE_NAME]
)
def test_no_error_repeats_a_long_name(file, good, tmp_path):
    version = tmp_path / NAME / "1.0.0"
    shutil.copytree(good, version)
    told = []
    if file == record.FILE_NAME:
        for changed in lengthened(json.loads(Record.of(version).data)):
            data = json.dumps(changed).encode()
            told += why_not(lambda data=data: Record.parse(data, "a store"))
    else:
        for changed in lengthened(json.loads((version / file).read_text())):
            if changed.pop("seal", None):
                changed["seal"] = manifest._seal(changed)
            (version / file).write_text(json.dumps(changed))
            told += all_said(version)
    assert len(told) > 10
    assert not {one[:80] for one in told if len(one) > 3000}


COMMANDS = {
    "verify": "verify {path}",
    "verify --deep": "verify --deep {path}",
    "verify --fast": "verify --fast {path}",
    "publish": "publish {path} --to {tmp}/store",
    "stats": "stats {path}",
    "diff": "diff {good} {path}",
    "info": "info {name}:1.0.0 --data-dir {data}",
    "list": "list --data-dir {data}",
    "adopt": "adopt {path}",
    "export": "export {path} --to parquet --output {tmp}/parquet",
    "bench": "bench {path} --seconds 1",
    "lock": "lock {name}:1.0.0 --data-dir {data} --file {tmp}/datasets.lock",
    "index": "index {path}",
}
SILENT = {"list", "lock", "index", "stats"}  # they read nothing of features


def run(command, **values):
    return CliRunner().invoke(cli, command.format(name=NAME, **values).split())


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_imports_what_metadata_name(name, good, trap, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    version = planted(good, tmp_path / "data")
    if name == "adopt":
        (version / "my_datasets_manifest.json").unlink()
    done = run(COMMANDS[name], path=version, good=good, data=tmp_path / "data", tmp=tmp_path)
    assert isinstance(done.exception, (MyDatasetsError, SystemExit, type(None)))
    if name not in SILENT:
        assert done.exit_code
        assert EVIL in f"{done.output}{done.exception}"


@pytest.fixture
def forged(good, tmp_path, monkeypatch):
    """A store with a release whose publisher has registered the class."""
    version = planted(good, tmp_path / "theirs")
    monkeypatch.setattr(feature_classes, "_registered", {EVIL})
    my_datasets.publish(str(version), tmp_path / "store", version_gate=False)
    monkeypatch.setattr(feature_classes, "_registered", set())
    return tmp_path / "store"


FROM_A_STORE = {
    "pull": lambda store, data: my_datasets.pull(NAME, store, data_dir=data),
    "load": lambda store, data: my_datasets.load(NAME, store=store, data_dir=data),
    "load, streamed": lambda store, data: my_datasets.load(
        NAME, store=store, data_dir=data, stream=True
    ),
    "attach": lambda store, data: my_datasets.attach(NAME, store, data),
}


@pytest.mark.parametrize("name", FROM_A_STORE)
def test_nothing_of_such_a_release_comes_here(name, forged, trap, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    with pytest.raises(MyDatasetsError, match=EVIL):
        FROM_A_STORE[name](str(forged), data)
    assert not list(data.rglob("features.json"))


@pytest.mark.parametrize("command", [
    "pull {name} --from {store} --data-dir {data}",
    "info {name} --from {store}",
    "ls --from {store}",
    "catalog --from {store} --to {data}/site",
])  # fmt: skip
def test_nor_does_a_command_import_it(command, forged, trap, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    done = run(command, store=forged, data=tmp_path / "data")
    assert isinstance(done.exception, (MyDatasetsError, SystemExit, type(None)))


def test_a_registered_class_is_published_pulled_and_loaded(good, tmp_path, monkeypatch):
    """Also on the command line, with --imports."""
    module = "module_that_registers"
    (tmp_path / f"{module}.py").write_text(
        "import my_datasets\nimport tensorflow_datasets as tfds\n"
        "@my_datasets.register_feature\nclass Feature(tfds.features.Text): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(feature_classes, "_registered", set())
    version = planted(good, tmp_path / "theirs", moduleName=module)
    features = version / "features.json"
    features.write_text(features.read_text().replace(MODULE, module))
    recorded(version)
    store, data = tmp_path / "store", tmp_path / "data"
    data.mkdir()
    done = run(f"publish {version} --to {store} --imports {module} --no-version-gate")
    assert done.exit_code == 0, done.output
    done = run(f"pull {NAME} --from {store} --data-dir {data} --imports {module}")
    assert done.exit_code == 0, done.output
    read = my_datasets.load(f"{NAME}:1.0.0", data_dir=data, split="train")
    assert len(list(read)) == 4


def test_a_builder_reads_its_own_features_though_nobody_registered_them(tmp_path, monkeypatch):
    """The code that defines them runs anyway."""
    import tensorflow_datasets as tfds

    class Own(tfds.features.Text):
        """A feature class beside its builder."""

    class OwnFeatures(Released):
        VERSION = tfds.core.Version("1.0.0")
        name = "own_features"
        rows = 3

        def _info(self):
            features = tfds.features.FeaturesDict({"number": np.int64, "noise": Own()})
            return tfds.core.DatasetInfo(builder=self, features=features)

    monkeypatch.setattr(feature_classes, "_registered", set())
    OwnFeatures(data_dir=tmp_path).download_and_prepare()
    monkeypatch.setattr(feature_classes, "_registered", set())
    for reference in ("own_features", "own_features:1.0.0", "own_features:1.*.*"):
        assert len(list(my_datasets.load(reference, data_dir=tmp_path, split="train"))) == 3
    with pytest.raises(UnregisteredFeatureError):
        my_datasets.source(tmp_path / "own_features" / "1.0.0")


ELSEWHERE = "../../../{SPLIT}-{SHARD_X_OF_Y}"
ENDLESS = "{DATASET:>100000000000}"
WHY_NOT = {ELSEWHERE: "are not called as files are", ENDLESS: "filepathTemplate is"}


@pytest.mark.parametrize("template", WHY_NOT, ids=["elsewhere", "endless"])
@pytest.mark.parametrize("name", [*CALLS, *COMMANDS])
def test_no_template_leaves_the_directory(name, template, good, tmp_path, monkeypatch):
    """There are good shards where the template leads: whoever followed it would succeed."""
    monkeypatch.chdir(tmp_path)
    version = tmp_path / "data" / NAME / "1.0.0"
    shutil.copytree(good, version)
    for shard in version.glob("*.tfrecord-*"):
        split, _, number = shard.name.partition("-")[2].partition(".tfrecord-")
        shutil.copy(shard, tmp_path / f"{split}-{number}")
    info = json.loads((version / "dataset_info.json").read_text())
    info["splits"] = [{**one, "filepathTemplate": template} for one in info["splits"]]
    (version / "dataset_info.json").write_text(json.dumps(info))
    if name == "adopt":
        (version / "my_datasets_manifest.json").unlink()
    if name in CALLS:
        with pytest.raises(MyDatasetsError, match=WHY_NOT[template]):
            CALLS[name](version, tmp_path / "data")
        return
    done = run(COMMANDS[name], path=version, good=good, data=tmp_path / "data", tmp=tmp_path)
    assert isinstance(done.exception, (MyDatasetsError, SystemExit, type(None)))
    assert not list(tmp_path.glob("my_datasets_*"))  # no index beside shards elsewhere
    if name not in SILENT - {"lock"}:
        assert WHY_NOT[template] in f"{done.output}{done.exception}"


# Whoever calls one of these makes TFDS read metadata.
READERS = {
    "builder_from_directory", "builder_from_directories", "builder_from_files",
    "builder_from_metadata", "ReadOnlyBuilder", "from_config", "from_json_content", "from_proto",
    "read_proto_from_builder_dir", "_find_builder_dir", "cls_from_name",
}  # fmt: skip
OF_TFDS = {"builder", "load"}
FILES = {"features.json": "feature_classes.py", "dataset_info.json": "declared.py"}


def test_only_one_module_makes_tfds_read_metadata(root):
    for source in sorted((root / "my_datasets").rglob("*.py")):
        if source.name in ("from_directory.py", "demo.py"):  # the demo reads what it has built
            continue
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            of_tfds = node.value.id in ("tfds", "tensorflow_datasets")
            assert not (of_tfds and node.attr in READERS | OF_TFDS), f"{source}:{node.lineno}"
            assert node.attr not in READERS or node.value.id == "cls", f"{source}:{node.lineno}"


def test_only_one_module_opens_each_file_of_metadata(root):
    """By name, in a path; other mentions of the names are in messages."""
    for source in sorted((root / "my_datasets").rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
                continue
            name = getattr(node.right, "value", None)
            if name in FILES and not _only_asks(source, node):
                raise AssertionError(f"{source}:{node.lineno} opens {name}")


def _only_asks(source, node) -> bool:
    line = source.read_text("utf-8").splitlines()[node.lineno - 1]
    return ".is_file()" in line or ".exists()" in line


def test_a_version_without_splits_is_not_exported(good, tmp_path):
    version = tmp_path / "data" / NAME / "1.0.0"
    shutil.copytree(good, version)
    info = json.loads((version / "dataset_info.json").read_text())
    (version / "dataset_info.json").write_text(json.dumps({**info, "splits": []}))
    done = run(COMMANDS["export"], path=version, tmp=tmp_path)
    assert isinstance(done.exception, SplitNotFoundError)
    assert not (tmp_path / "parquet").exists()


@pytest.mark.parametrize("how", ["load", "load all", "export", "adopt", "bench"])
def test_a_missing_shard_is_named(how, good, tmp_path):
    version = tmp_path / "data" / NAME / "1.0.0"
    shutil.copytree(good, version)
    (shard,) = version.glob("*-train.tfrecord-*")
    shard.unlink()
    data = tmp_path / "data"
    assert len(list(my_datasets.load(f"{NAME}:1.0.0", data_dir=data, split="test"))) == 10
    if how.startswith("load"):
        split = "train[:2]" if how == "load" else None
        with pytest.raises(CorruptShardError) as raised:
            my_datasets.load(f"{NAME}:1.0.0", data_dir=data, split=split)
        error = raised.value
    else:
        if how == "adopt":
            (version / "my_datasets_manifest.json").unlink()
        error = run(COMMANDS[how], path=version, tmp=tmp_path).exception
        assert isinstance(error, CorruptShardError)
    assert f"{shard} does not exist" in str(error)
    if how != "bench":
        assert f"my-datasets verify {version}" in str(error)


DISTRIBUTION = {"min": 0, "max": 1, "mean": 1, "std": 1, "percentiles": [1] * 101,
                "histogram": {"edges": [0, 1], "counts": [1]}}  # fmt: skip
STATISTICS = {
    "a kind that there is not": {"kind": "x"},
    "no distribution": {"kind": "number", "min": 0},
    "text in place of a number": {"kind": "number", **DISTRIBUTION, "min": "a"},
    "text in place of an edge": {"kind": "number", **DISTRIBUTION,
                                 "histogram": {"edges": [0, "a"], "counts": [1]}},
    "truth in place of a number": {"kind": "number", **DISTRIBUTION, "mean": True},
    "few percentiles": {"kind": "number", **DISTRIBUTION, "percentiles": [1]},
    "values of each example without a distribution": {"kind": "number", "values_per_example": {}},
    "no classes": {"kind": "label"},
    "values that are no values": {"kind": "number", "distinct": {"number": 1, "is_exact": True},
                                  "top": {"is_exact": True, "values": ["a"]}},
    "a list in place of a value": {"kind": "number", "top": {
        "is_exact": True, "values": [{"count": 1, "value": ["a"]}]}},
    "distinct values, and no list of them": {"kind": "text",
                                             "distinct": {"number": 1, "is_exact": True}},
    "a negative count": {"kind": "label", "classes": {"a": -1, "b": -10}},
    "no edges": {"kind": "number", **DISTRIBUTION, "histogram": {"edges": [], "counts": [1]}},
    "an odd count": {"kind": "number", "nan": "a"},
    "pictures of no size": {"kind": "image", "formats": {"png": 1}},
    "channels without deviations": {"kind": "image", "formats": {}, "bytes": {},
                                    "channels": {"means": [1], "stds": [], "images": 1}},
    "a sample rate of none": {"kind": "number", "sample_rate": 0},
    "classes that are no counts": {"kind": "label", "classes": {"a": "many"}},
    "no object": 7,
}  # fmt: skip


@pytest.mark.parametrize("what", STATISTICS)
@pytest.mark.parametrize("command", ["stats {path}", "verify {path}", "diff {good} {path}"])
def test_statistics_that_are_none(what, command, good, tmp_path):
    version = tmp_path / "data" / NAME / "1.0.0"
    shutil.copytree(good, version)
    one = STATISTICS[what]
    feature = {"missing": 0, "values": 4, **one} if isinstance(one, dict) else one
    made = Manifest.read(version)
    found = {"train": {"examples": 4, "features": {"number": feature}}}
    dataclasses.replace(made, statistics=found).write(version)
    done = run(command, path=version, good=good)
    assert isinstance(done.exception, (MyDatasetsError, SystemExit))
    assert "manifest" in f"{done.output}{done.exception}"


def test_the_distribution_of_these_is_one(good, tmp_path):
    """So what is refused above is refused for what is changed of it."""
    made = Manifest.read(good)
    feature = {"kind": "number", "missing": 0, "values": 4, **DISTRIBUTION}
    found = {"train": {"examples": 4, "features": {"number": feature}}}
    (tmp_path / "1.0.0").mkdir()
    dataclasses.replace(made, statistics=found).write(tmp_path / "1.0.0")
    assert Manifest.read(tmp_path / "1.0.0").statistics == found


METADATA = [
    "dataset_info.json", "features.json", "my_datasets_manifest.json", "../.config/metadata.json",
]  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("file", METADATA)
def test_json_that_harms(what, file, good, tmp_path):
    version = tmp_path / "data" / NAME / "1.0.0"
    shutil.copytree(good, version)
    (version / file).parent.mkdir(exist_ok=True)
    data = HOSTILE[what]
    (version / file).write_bytes(data if isinstance(data, bytes) else data.encode())
    for name in ("verify", "stats", "diff", "list", "info", "publish"):
        command = COMMANDS[name]
        done = run(command, path=version, good=good, data=tmp_path / "data", tmp=tmp_path)
        assert isinstance(done.exception, (MyDatasetsError, SystemExit, type(None))), command
    for call in (CALLS["load"], CALLS["source"]):
        with contextlib.suppress(MyDatasetsError):
            call(version, tmp_path / "data")


@pytest.mark.parametrize("what", HOSTILE)
def test_documents_of_a_store_that_harm(what, tmp_path):
    data = HOSTILE[what] if isinstance(HOSTILE[what], bytes) else HOSTILE[what].encode()
    with pytest.raises(CorruptReleaseError):
        Record.parse(data, "a store")
    with pytest.raises(MALFORMED):
        parse_signed_json(data)
    (tmp_path / "datasets.lock").write_bytes(data)
    with pytest.raises(LockError):
        Lock.read(tmp_path / "datasets.lock")
