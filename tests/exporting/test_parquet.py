"""Exports, read by others: what they find is what TFDS gives."""

import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow_datasets as tfds
import yaml
from click.testing import CliRunner

import my_datasets
from my_datasets import errors
from my_datasets.cli.main import cli
from my_datasets.exporting.parquet import MARKER, export
from my_datasets.exporting.version_summary import About
from my_datasets.input_pipeline.read.prepared import find
from my_datasets.publishing.publisher import publish
from tests.building.engines.builds import build
from tests.publishing import forging
from tests.statistics import rows

F = tfds.features
IN_ORDER = tfds.ReadConfig(interleave_cycle_length=1)


class Odd(my_datasets.Builder, skip_registration=True):
    """Features of the forms that are harder to write."""

    VERSION = tfds.core.Version("1.0.0")
    name = "odd_features"
    rows: ClassVar[int] = 23

    def _info(self):
        features = {
            "half": np.float16,
            "big": np.uint64,
            "matrix": F.Tensor(shape=(2, 3), dtype=np.int16),
            "wide": F.Tensor(shape=(None, 2), dtype=np.float32),
            "ragged": F.Tensor(shape=(None, None), dtype=np.int64, encoding="bytes"),
            "words": F.Sequence(F.Text()),
            "deep": F.Sequence(F.Sequence(F.Text())),
            "raw": F.Tensor(shape=(), dtype=np.str_),
            "maybe": F.Scalar(np.int64, optional=True),
            "images": F.Sequence(F.Image(shape=(4, 4, 3))),
            "objects": F.Sequence(
                {"label": F.ClassLabel(names=["b", "a"]), "box": F.BBoxFeature()}
            ),
            "inner": {"text": F.Text(), "more": {"flag": np.bool_}},
        }
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(), "few": self._rows(2)}

    def _rows(self, count):
        for i in range(count):
            rng = np.random.default_rng(i)
            yield (
                i,
                {
                    "half": np.float16(i / 3),
                    "big": np.uint64(2**63 + (i << 40)),
                    "matrix": np.full((2, 3), -i, np.int16),
                    "wide": np.full((i % 3, 2), i, np.float32),
                    "ragged": np.full((i % 3, 1 + i % 2), i, np.int64),
                    "words": [f"w{j}é" for j in range(i % 4)],
                    "deep": [["x"] * j for j in range(i % 3)],
                    "raw": bytes([i, 255 if i % 2 else 65]),
                    "maybe": i if i % 2 else None,
                    "images": [rng.integers(0, 255, (4, 4, 3), np.uint8) for _ in range(i % 3)],
                    "objects": [
                        {"label": j % 2, "box": F.BBox(0.0, 0.1, 0.5, 0.6)} for j in range(i % 3)
                    ],
                    "inner": {"text": f"t{i}", "more": {"flag": bool(i % 2)}},
                },
            )

    def _generate_examples(self):
        yield from self._rows(type(self).rows)


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    return build(rows.Statistics, tmp_path_factory.mktemp("exported") / "data", workers=1)


@pytest.fixture(scope="module")
def exported(version, tmp_path_factory):
    target = tmp_path_factory.mktemp("exported") / "plain"
    done = CliRunner().invoke(cli, ["export", str(version), "--to", "parquet", "--output",
                                    str(target), "--file-size", "20K"])  # fmt: skip
    assert done.exit_code == 0, done.output
    return target


@pytest.fixture(scope="module")
def given(version):
    """What TFDS gives."""
    data = tfds.builder_from_directory(version).as_dataset(split="train", read_config=IN_ORDER)
    return list(tfds.as_numpy(data))


def plain(value: Any) -> Any:
    """Returns values as Python has them, without those that stand for missing ones."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if hasattr(value, "to_list"):  # TensorFlow's ragged tensors
        return plain(value.to_list())
    if isinstance(value, (np.ndarray, list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value.item() if isinstance(value, np.generic) else value


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and np.isnan(expected):
        return bool(np.isnan(found))
    return found == expected


def pixels(file: bytes) -> Any:
    import io

    from PIL import Image

    with Image.open(io.BytesIO(file)) as image:
        return np.array(image)


def require_same(found: list[dict[str, Any]], given: list[dict[str, Any]]) -> None:
    """Compares rows with TFDS's; of missing values it gives the least number there is."""
    assert len(found) == len(given)
    for mine, theirs in zip(found, given, strict=True):
        assert set(mine) == set(theirs)
        for name, value in theirs.items():
            if name == "image":
                np.testing.assert_array_equal(pixels(mine[name]["bytes"]), value)
            elif name == "maybe" and mine[name] is None:
                assert value == np.iinfo(np.int64).min
            else:
                assert same(plain(mine[name]), plain(value)), name


def test_pyarrow(exported, given):
    files = sorted((exported / "data").glob("train-*"))
    assert len(files) > 1
    assert files[0].name == f"train-00000-of-{len(files):05}.parquet"
    table = pa.concat_tables(pq.read_table(one) for one in files)
    require_same(table.to_pylist(), given)
    assert sum(one["maybe"] is None for one in table.to_pylist()) == rows.ROWS // 4


def test_datasets(exported, given, tmp_path):
    """Images and labels are images and labels there, with no more than the path."""
    import datasets

    datasets.disable_progress_bars()
    for found in (
        datasets.load_dataset(str(exported), cache_dir=tmp_path, split="train"),
        datasets.load_dataset(
            "parquet", data_files=str(exported / "data/*.parquet"), cache_dir=tmp_path,
            split="train",
        ),
    ):  # fmt: skip
        assert found.features["label"] == datasets.ClassLabel(names=["cat", "dog", "eel"])
        assert isinstance(found.features["image"], datasets.Image)
        assert len(found) == len(given)
        for mine, theirs in zip(found.select(range(20)), given, strict=False):
            np.testing.assert_array_equal(np.array(mine["image"]), theirs["image"])
            assert mine["label"] == theirs["label"]
            assert mine["text"] == theirs["text"].decode()


def test_the_card_is_what_datasets_finds(exported):
    import datasets

    _, head, body = (exported / "README.md").read_text().split("---\n", 2)
    noted = yaml.safe_load(head)
    info = datasets.DatasetInfo._from_yaml_dict(noted["dataset_info"])
    schema = pq.read_schema(next((exported / "data").glob("*.parquet")))
    assert info.features == datasets.Features.from_arrow_schema(schema)
    assert info.splits["train"].num_examples == rows.ROWS
    assert noted["size_categories"] == ["n<1K"]
    assert noted["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-*"}]
    assert "| train | 300 |" in body


def test_pandas(exported, given):
    found = pd.read_parquet(exported / "data")
    assert list(found["small"]) == [one["small"] for one in given]
    assert list(found["text"]) == [one["text"].decode() for one in given]
    assert found["maybe"].isna().sum() == rows.ROWS // 4
    np.testing.assert_array_equal(pixels(found["image"][3]["bytes"]), given[3]["image"])


def test_polars(exported, given):
    import polars

    found = polars.read_parquet(exported / "data/*.parquet")
    assert found["label"].to_list() == [one["label"] for one in given]
    assert found["list"].to_list() == [one["list"].tolist() for one in given]
    assert found["maybe"].null_count() == rows.ROWS // 4


def test_duckdb(exported, given):
    import duckdb

    query = f"select sum(small), count(maybe), sum(len(list)) from '{exported}/data/*.parquet'"
    assert duckdb.sql(query).fetchall() == [(
        sum(int(one["small"]) for one in given), rows.ROWS * 3 // 4,
        sum(len(one["list"]) for one in given),
    )]  # fmt: skip


def test_croissant(exported, given):
    import mlcroissant as mlc

    found = mlc.Dataset(str(exported / "croissant.json"))
    assert not found.metadata.issues.errors
    records = list(found.records("examples"))
    assert len(records) == len(given)
    for mine, theirs in zip(records[:30], given, strict=False):
        np.testing.assert_array_equal(np.array(mine["examples/image"]), theirs["image"])
        assert mine["examples/label"] == theirs["label"]
        assert mine["examples/text"] == theirs["text"]
        assert np.array_equal(mine["examples/list"], theirs["list"])
        assert mine["examples-split"] == b"train"


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    builder = Odd(data_dir=tmp_path_factory.mktemp("odd"))
    builder.download_and_prepare()
    return Path(builder.data_dir)


def test_features_of_all_forms(odd, tmp_path):
    export(find(odd), tmp_path / "out")
    data = tfds.builder_from_directory(odd).as_dataset(split="train", read_config=IN_ORDER)
    expected = list(tfds.as_numpy(data))
    found = pq.read_table(next((tmp_path / "out/data").glob("train-*"))).to_pylist()
    assert len(found) == Odd.rows
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["raw"] == theirs["raw"]  # bytes that are no text, as the manifest says
        assert [one["bytes"][:4] for one in mine["images"]] == [b"\x89PNG"] * len(theirs["images"])
        for name in {*theirs} - {"raw", "images", "maybe"}:
            assert plain(mine[name]) == plain(theirs[name]), name
        assert (mine["maybe"] is None) == (theirs["maybe"] == np.iinfo(np.int64).min)


def test_one_split_only(odd, tmp_path):
    done = export(find(odd), tmp_path / "out", splits=["few"])
    assert [one.name for one in done.files] == ["data/few-00000-of-00001.parquet"]
    with pytest.raises(errors.SplitNotFoundError, match="no split nothing"):
        export(find(odd), tmp_path / "other", splits=["nothing"])
    assert not (tmp_path / "other").exists()


def test_texts_that_are_none(odd, tmp_path):
    """Without a manifest nobody has looked: it is said which feature it is, and what to do."""
    shutil.copytree(odd, tmp_path / "odd_features/1.0.0")
    (tmp_path / "odd_features/1.0.0/my_datasets_manifest.json").unlink()
    prepared = find(tmp_path / "odd_features/1.0.0")
    with pytest.raises(errors.FeatureError, match=r"'raw' are text.*\n.*\n.*--binary raw"):
        export(prepared, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    export(prepared, tmp_path / "out", binary=["raw"])
    with pytest.raises(errors.FeatureError, match="no text or bytes feature nothing"):
        export(prepared, tmp_path / "more", binary=["nothing"])


def test_nothing_else_is_replaced(odd, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("mine")
    for overwrite in (True, False):
        with pytest.raises(errors.OverwriteError, match="already exists"):
            export(find(odd), tmp_path / "mine", overwrite=overwrite)
    export(find(odd), tmp_path / "out", splits=["train"])
    before = (tmp_path / "out" / MARKER).stat().st_mtime_ns
    with pytest.raises(errors.OverwriteError, match="an earlier export"):
        export(find(odd), tmp_path / "out")
    assert (tmp_path / "out" / MARKER).stat().st_mtime_ns == before
    export(find(odd), tmp_path / "out", overwrite=True)
    assert len(list((tmp_path / "out/data").iterdir())) == 2
    assert {one.name for one in tmp_path.iterdir()} == {"mine", "out"}


def test_of_a_link_what_it_leads_to_is_replaced(odd, tmp_path):
    (tmp_path / "disk" / "out").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "out")
    export(find(odd), tmp_path / "link", splits=["few"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "out" / MARKER).is_file()
    export(find(odd), tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["out"]


def test_what_is_put_there_in_the_meantime_stays(odd, tmp_path):
    def put(*_):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "thesis.txt").write_text("mine")

    for overwrite in (False, True):
        with pytest.raises(errors.OverwriteError):
            export(find(odd), tmp_path / "out", overwrite=overwrite, report=put)
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        shutil.rmtree(tmp_path / "out")


def test_damaged_shards_are_reported_and_nothing_is_left(odd, tmp_path):
    copy = tmp_path / "odd_features/1.0.0"
    shutil.copytree(odd, copy)
    shard = next(copy.glob("*-train.*-of-?????"))
    data = bytearray(shard.read_bytes())
    data[200] ^= 1
    shard.write_bytes(data)
    with pytest.raises(errors.CorruptShardError):
        export(find(copy), tmp_path / "out")
    assert [one.name for one in tmp_path.iterdir()] == ["odd_features"]


def test_examples_that_do_not_fit(odd, tmp_path):
    copy = tmp_path / "odd_features/1.0.0"
    shutil.copytree(odd, copy)
    features = json.loads((copy / "features.json").read_text())
    matrix = features["featuresDict"]["features"]["matrix"]
    matrix["tensor"]["shape"]["dimensions"] = ["7"]
    (copy / "features.json").write_text(json.dumps(features))
    with pytest.raises(errors.ExampleError, match=r"'matrix' of .* cannot be written"):
        export(find(copy), tmp_path / "out")


def test_a_kill_leaves_nothing_that_looks_whole(odd, tmp_path):
    code = (
        "import signal\nfrom pathlib import Path\n"
        "from my_datasets.exporting.parquet import export\n"
        "from my_datasets.input_pipeline.read.prepared import find\n"
        "def told(*_):\n    print('told', flush=True)\n    signal.pause()\n"
        f"export(find(Path({str(odd)!r})), Path({str(tmp_path / 'out')!r}), report=told)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"told\n"
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out").exists()
    export(find(odd), tmp_path / "out")
    assert (tmp_path / "out" / MARKER).is_file()


def test_memory_is_bounded(tmp_path):
    """512 MB of records go through a process that grows by less than half of that."""
    code = f"""
import resource, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from my_datasets.exporting import parquet
from my_datasets.input_pipeline.read.prepared import find
prepared = find(Path({str(tmp_path / "data" / "large_texts" / "1.0.0")!r}))
parquet.export(prepared, Path({str(tmp_path / "warm")!r}), splits=["few"])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
done = parquet.export(prepared, Path({str(tmp_path / "out")!r}), splits=["train"])
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(grown, sum(one.examples for one in done.files))
"""

    class LargeTexts(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = "large_texts"

        def _info(self):
            features = F.FeaturesDict({"text": F.Text(), "number": np.int64})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(2048), "few": self._generate_examples(2)}

        def _generate_examples(self, count=0):
            for i in range(count):
                yield i, {"text": np.random.default_rng(i).bytes(1 << 17).hex(), "number": i}

    LargeTexts(data_dir=tmp_path / "data").download_and_prepare()
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
    )  # fmt: skip
    grown, examples = map(int, done.stdout.split())
    assert examples == 2048
    assert grown < 250 << 10, grown  # KiB


def test_the_command_tells_scripts(odd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["export", str(odd), "--to", "parquet", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["path"] == str(tmp_path / "odd_features-1.0.0-parquet")
    for one in told["files"]:
        data = (Path(told["path"]) / one["name"]).read_bytes()
        assert (one["bytes"], one["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


def test_the_same_files_every_time(odd, tmp_path):
    first, second = (export(find(odd), tmp_path / name) for name in ("a", "b"))
    assert [one.sha256 for one in first.files] == [one.sha256 for one in second.files]
    assert dataclasses.replace(first, path=second.path) == second


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize("name", ["label.labels.txt", "LICENSE", "my_datasets_manifest.json"])
def test_what_links_of_metadata_lead_to_is_not_published(tmp_path, name, is_inside):
    """A version that somebody mailed, of which a file is a link to the victim's key."""
    version = forging.make(tmp_path / "data")
    secret = version / "inner" / "secret" if is_inside else tmp_path / "secret"
    secret.parent.mkdir(exist_ok=True)
    path = version / name
    secret.write_bytes(path.read_bytes() if path.exists() else b"KEY\n")
    path.unlink(missing_ok=True)
    path.symlink_to(secret)
    assert len(list(my_datasets.batches(version, split="test", batch_size=40))) == 1
    with pytest.raises(errors.PublishError, match="is not a regular file"):
        publish(str(version), tmp_path / "store")
    if is_inside:
        export(find(version), tmp_path / "out")
        return
    with pytest.raises(errors.IncompleteVersionError, match=f"{name} is a link that leads out"):
        export(find(version), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(errors.IncompleteVersionError, match=f"{name} is a link that leads out"):
        About.read(version)
    done = CliRunner().invoke(
        cli, ["catalog", "--from", str(tmp_path / "data"), "--to", str(tmp_path / "site")]
    )
    assert done.exit_code == 1
    assert f"{name} is a link that leads out" in done.output
    pages = [one for one in (tmp_path / "site").rglob("*") if one.is_file()]
    assert pages
    assert not any(b"KEY\n" in one.read_bytes() for one in pages)
