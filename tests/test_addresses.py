"""No path of a command or a function takes an address for a folder called `s3:`."""

import importlib
import inspect
import os
from pathlib import Path

import pytest
import rich_click as click
from click.testing import CliRunner

import my_datasets
from my_datasets import feature_columns
from my_datasets.catalog import site
from my_datasets.cli.main import COMMANDS, cli
from my_datasets.cli.options import LocalPath, PathOrAddress
from my_datasets.errors import DataDirError, InvalidOptionError, MyDatasetsError
from my_datasets.kafka.decoder import Quarantine
from my_datasets.storage import addresses
from my_datasets.storage.backends import open_store

ELSEWHERE = ["s3://bucket/x", "gs://bucket/x", "https://host.invalid/x", "hf://datasets/x/y"]
# `pathlib` takes a slash out; what it leaves was meant as an address all the same.
ADDRESSES = [*ELSEWHERE, os.fspath(Path("s3://bucket/x"))]
NO_TEXT = (
    click.types.BoolParamType, click.types.IntParamType, click.types.FloatParamType, click.Choice,
)  # fmt: skip

# Texts that are no path. A new parameter is one of these, a LocalPath, or a PathOrAddress.
NO_PATHS = {
    "beam-worker --host", "bench --split", "bench --columns", "bench --image-size",
    "build --config", "build --mirror", "build --beam-pipeline-options",
    "build --beam-option", "build --splits", "build --max-memory", "catalog --title",
    "catalog --address",  # which pages name, and nothing is read or written there
    "checksums name", "checksums --mirror", "export --split",
    "export --binary", "export --file-size", "history dataset", "ls dataset",
    "new name", "new --label", "new --split", "new --group", "new --stratify", "new --kind",
    "new --key", "new --table", "publish --note", "pull --splits", "serve --host",
    "serve --dispatcher", "serve --worker", "sign dataset", "snapshot url", "snapshot --as",
    "snapshot --from-offsets", "snapshot --until", "snapshot --split", "snapshot --max-memory",
    "stats --split", "stats --feature", "yank --message", "publish --valid-for",
    "sign --valid-for",
}  # fmt: skip
# A dataset by its name; for some the directory of a version will do.
REFERENCES = {
    "bench reference", "build references", "check builders", "diff old", "diff new",
    "export version", "info reference", "lock references", "publish versions", "pull references",
    "snapshot --features", "stats version", "verify versions", "yank reference",
}  # fmt: skip
# What makes a command whole, beside the parameter that is tried.
OTHERS = {
    "serve": ["dispatcher"],
    "new": ["name", "--from", "data.csv"],
    "snapshot": ["kafka://127.0.0.1:9/topic", "--as", "x:1.0.0", "--features", "digits"],
    "diff": ["digits:1.0.0", "digits:1.0.0"],
    "catalog": ["--from", "store"],
    "yank": ["digits:1.0.0", "--from", "store", "--message", "why"],
    "publish": ["digits", "--to", "store"],
    "sign": ["--to", "store", "--sign-key", "key"],
    **{name: ["--from", "store"] for name in ("gc", "ls")},
    **{name: ["digits", "--from", "store"] for name in ("history", "pull")},
    **{name: ["digits"] for name in ("bench", "build", "export", "info", "stats", "checksums")},
}


def parameters() -> dict[str, tuple[str, click.Parameter]]:
    context = click.Context(cli)
    return {
        f"{name} {one.opts[0]}": (name, one)
        for name in COMMANDS
        for one in cli.get_command(context, name).params
        if not isinstance(one.type, NO_TEXT) and one.opts[0] != "--imports"
    }


def of_type(kind: type) -> list[str]:
    return [name for name, (_, one) in parameters().items() if isinstance(one.type, kind)]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty working directory, which no folder for an address is made in."""
    monkeypatch.chdir(tmp_path)
    for name in ("MY_DATASETS_STORE", "MY_DATASETS_SIGN_KEY", "MY_DATASETS_TRUSTED_KEYS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "store").mkdir()
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    yield tmp_path
    assert {one.name for one in tmp_path.iterdir() if ":" in one.name} == set()


def ran(name: str, address: str) -> click.testing.Result:
    command, parameter = parameters()[name]
    others = OTHERS.get(command, [])
    if not isinstance(parameter, click.Argument):
        if parameter.opts[0] in others:
            at = others.index(parameter.opts[0])
            others = [*others[:at], *others[at + 2 :]]
        return CliRunner().invoke(cli, [command, *others, parameter.opts[0], address])
    rest = [one for one in others if one not in ("digits", "digits:1.0.0")]
    both = [address, address] if command == "diff" else [address]
    return CliRunner().invoke(cli, [command, *both, *rest])


def said_by(done: click.testing.Result) -> str:
    """What was printed, without the frame around it."""
    return " ".join(done.output.replace("│", " ").split())


def test_every_text_that_a_command_takes_is_a_path_or_known_to_be_none():
    typed = {*of_type(LocalPath), *of_type(PathOrAddress)}
    assert set(parameters()) == typed | NO_PATHS | REFERENCES
    assert not typed & (NO_PATHS | REFERENCES)
    assert len(typed) > 60
    # Click's own type would take an address for a path.
    assert {*of_type(click.Path)} == {*of_type(LocalPath)}


@pytest.mark.parametrize("name", of_type(LocalPath))
def test_a_path_of_this_machine_is_no_address(name, here):
    for address in ADDRESSES:
        done = ran(name, address)
        assert done.exit_code == 2, done.output
        assert "is an address; it must be on this machine" in said_by(done), done.output
    _, parameter = parameters()[name]
    with click.Context(cli) as context:
        if not parameter.type.exists:
            found = parameter.type.convert(f"file://{here}/a%20b", parameter, context)
            assert os.fspath(found) == f"{here}/a b"


@pytest.mark.parametrize("name", of_type(PathOrAddress))
def test_an_address_is_of_a_kind_that_is_supported(name, here):
    _, parameter = parameters()[name]
    with click.Context(cli) as context:
        assert parameter.type.convert(f"file://{here}/x", parameter, context) == f"{here}/x"
        assert parameter.type.convert("gs://bucket/x", parameter, context) == "gs://bucket/x"
    schemes = parameter.type.schemes
    refused = [] if schemes is None else [
        one for one in ELSEWHERE if addresses.scheme_of(one) not in schemes
    ]  # fmt: skip
    for address in [*refused, ADDRESSES[-1]]:
        done = ran(name, address)
        assert done.exit_code == 2, done.output
        said = said_by(done)
        assert "of a kind that is not supported" in said or "neither a path nor an" in said


# The two others read a version where it is, in a store.
@pytest.mark.parametrize("name", sorted(REFERENCES - {"bench reference", "snapshot --features"}))
def test_an_address_is_no_name_of_a_dataset(name):
    for address in ADDRESSES:
        done = ran(name, address)
        assert done.exit_code in (1, 2), done.output
        assert done.exit_code == 2 or isinstance(done.exception, (MyDatasetsError, SystemExit))


# Parameters of public functions that are paths on this machine, and what else those need.
DIGITS = {"reference": "digits"}
STORE = DIGITS | {"store": "store"}
FAR = {"reference": "s3://bucket/digits/1.0.0"}
PLANNED = ("plan", "pipeline", "batches", "torch_loader")
LOCAL = {
    **{f"{one} cache_dir": DIGITS | {"cache": "disk"} for one in PLANNED},
    **{f"{one} shards_dir": FAR for one in (*PLANNED, "source", "grain_dataset")},
    "attach cache_dir": STORE,
    "load cache_dir": STORE,
    "publish data_dir": STORE,
    "pull data_dir": STORE,
    "feature_columns.load directory": {},
    "feature_columns.FeatureColumns.save directory": {"self": None},
}
# Those that may be addresses of object stores that TensorFlow, or this package, knows.
KNOWN = {
    **{f"{one} data_dir": DIGITS for one in (*PLANNED, "source", "grain_dataset")},
    "load data_dir": DIGITS,
    "feature_columns.adapt data_dir": DIGITS | {"columns": {"label": feature_columns.identity(10)}},
    "text.train_tokenizer data_dir": DIGITS | {"column": "text"},
    "load store": DIGITS,
    "attach store": DIGITS,
    "pull store": DIGITS,
}
# Read where it is, by what `sources` reads; or a reference, or a dataset's folder.
READ = {
    *(f"{one} reference" for one in (*PLANNED, "source", "grain_dataset", "publish")),
    *(f"{one} tokenizer" for one in PLANNED), "publish store", "feature_columns.vocabulary file",
}  # fmt: skip


def functions() -> dict[str, object]:
    found = {name: getattr(my_datasets, name) for name in my_datasets.__all__}
    found |= {
        f"feature_columns.{one}": getattr(feature_columns, one) for one in feature_columns.__all__
    }
    found["feature_columns.FeatureColumns.save"] = feature_columns.FeatureColumns.save
    found["text.train_tokenizer"] = my_datasets.text.train_tokenizer
    return {name: one for name, one in found.items() if inspect.isfunction(one)}


def test_every_path_that_a_function_takes_is_tried_here():
    found = {
        f"{name} {one.name}"
        for name, function in functions().items()
        for one in inspect.signature(function).parameters.values()
        if "PathLike" in str(one.annotation) or one.name.endswith(("_dir", "directory", "file"))
    }
    assert found == {*LOCAL, *KNOWN} | READ


@pytest.mark.parametrize("address", [*ADDRESSES, Path("s3://bucket/x")], ids=repr)
@pytest.mark.parametrize("name", LOCAL)
def test_a_functions_path_of_this_machine_is_no_address(name, address):
    function, parameter = name.split()
    if name == "publish data_dir" and "://" in os.fspath(address):
        kinds, said = DataDirError, "is in an object store"
    else:
        kinds, said = InvalidOptionError, "(is an address; it must|neither a path nor an address)"
    with pytest.raises(kinds, match=said):
        functions()[function](**LOCAL[name] | {parameter: address})


@pytest.mark.parametrize("name", KNOWN)
def test_a_function_takes_no_address_that_lost_a_slash(name):
    function, parameter = name.split()
    with pytest.raises(InvalidOptionError, match="neither a path nor an address"):
        functions()[function](**KNOWN[name] | {parameter: Path("s3://bucket/x")})


@pytest.mark.parametrize("address", ["https://host.invalid/x", "hf://datasets/x/y"])
def test_a_builder_has_no_data_where_tfds_would_make_a_folder(address):
    registered = importlib.import_module("my_datasets.datasets.digits.digits_dataset_builder")
    with pytest.raises(InvalidOptionError, match="of a kind that is not supported"):
        registered.Builder(data_dir=address)
    builder = registered.Builder(data_dir="data")
    with pytest.raises(InvalidOptionError, match="of a kind that is not supported"):
        builder.download_and_prepare(download_dir=address)


def test_a_file_address_is_its_path(here):
    my_datasets.load("digits", data_dir=f"file://{here}/some%20data")
    assert (here / "some data/digits/1.0.0/dataset_info.json").is_file()
    source = my_datasets.source("digits", split="test", data_dir=f"file://{here}/some%20data")
    assert len(source) == 359
    with pytest.raises(InvalidOptionError, match="is an address"):
        addresses.local_path("file://host/x", "It")


def test_a_path_may_have_a_colon(here):
    assert addresses.local_path("a:b", "It") == Path("a:b")
    assert addresses.local_path("./s3:/x", "It") == Path("s3:/x")
    with pytest.raises(InvalidOptionError, match="neither a path nor an address"):
        open_store(Path("s3://bucket/x"))
    assert open_store("./a:b").url.endswith("/a:b")


@pytest.mark.parametrize("make", [
    lambda where: site.write(None, Path(where)),
    lambda where: Quarantine(where, 0.5),
], ids=["catalog", "quarantine"])  # fmt: skip
def test_what_commands_and_streams_write_lies_on_this_machine(make):
    for address in ADDRESSES:
        with pytest.raises(InvalidOptionError, match="is an address"):
            make(address)
