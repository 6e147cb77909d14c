"""Sources through the engine, read again by TFDS."""

import json

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import sources
from my_datasets.errors import BuilderError, ExampleError
from my_datasets.sources import text_rows


def builder_of(source, tmp_path, **features):
    class FromSource(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = "from_source"

        def _info(self):
            of_source = source.features()
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict({**of_source, **features}),
            )

        def _split_generators(self, dl_manager):
            return {"train": source}

    return FromSource(data_dir=tmp_path / "data")


def read(builder):
    found = tfds.builder_from_directory(builder.data_dir)
    return list(tfds.as_numpy(found.as_dataset(split="train")))


@pytest.mark.parametrize("workers", [1, 2])
def test_all_rows_of_a_file_in_parts(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(text_rows, "PIECE", 200)
    path = tmp_path / "file.csv"
    path.write_text("n,text,kind\n" + "".join(f'{i},"t,{i}",{"ab"[i % 2]}\n' for i in range(500)))
    builder = builder_of(
        sources.csv(path), tmp_path, kind=tfds.features.ClassLabel(names=["a", "b"])
    )
    builder.download_and_prepare(build_options=my_datasets.BuildOptions(workers=workers))
    found = {int(row["n"]): (row["text"], int(row["kind"])) for row in read(builder)}
    assert found == {i: (f"t,{i}".encode(), i % 2) for i in range(500)}


def test_every_type_of_the_table_can_be_stored(tmp_path):
    table = pa.table(
        {
            "flag": [True], "small": pa.array([7], pa.uint8()),
            "float": pa.array([1.5], pa.float32()),
            "text": ["é"], "binary": [b"\x00\xff"], "date": pa.array([3], pa.date32()),
            "stamp": pa.array([5], pa.timestamp("us")), "kind": pa.array(["x"]).dictionary_encode(),
            "vector": pa.array([[1, 2]], pa.list_(pa.int32(), 2)), "list": [[1, 2, 3]],
            "texts": [["a", "b"]], "struct": [{"a": 1, "b": "x"}],
            "structs": [[{"a": 1}, {"a": 2}]],
        }
    )  # fmt: skip
    builder = builder_of(sources.table(table), tmp_path)
    builder.download_and_prepare()
    (row,) = read(builder)
    assert row["structs"]["a"].tolist() == [1, 2]
    assert (row["struct"]["a"], row["struct"]["b"]) == (1, b"x")
    assert row["texts"].tolist() == [b"a", b"b"]
    assert {name: np.asarray(row[name]).tolist() for name in table.column_names[:10]} == {
        "flag": True, "small": 7, "float": 1.5, "text": "é".encode(), "binary": b"\x00\xff",
        "date": 3, "stamp": 5, "kind": b"x", "vector": [1, 2], "list": [1, 2, 3],
    }  # fmt: skip


def test_nulls_are_left_out_and_come_back(tmp_path):
    table = pa.table(
        {
            "n": pa.array([1, None], pa.int16()), "float": pa.array([None, 2.5], pa.float32()),
            "double": [1.5, None], "flag": [None, True],
            "text": [None, "x"], "binary": [b"y", None], "whole": [5, 6],
            "vector": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
        }
    )  # fmt: skip
    builder = builder_of(sources.table(table), tmp_path)
    builder.download_and_prepare()
    found = tfds.builder_from_directory(builder.data_dir)
    rows = {
        int(row["whole"]): {name: np.asarray(value).tolist() for name, value in row.items()}
        for row in tfds.as_numpy(found.as_dataset(split="train"))
    }
    least = int(np.iinfo(np.int32).min)
    assert rows == {
        5: {
            "n": 1, "float": float(np.finfo(np.float32).min), "double": 1.5, "flag": False,
            "text": b"", "binary": b"y", "whole": 5, "vector": [1, 2],
        },
        6: {
            # TFDS stores 32 bits of it.
            "n": -(2**15), "float": 2.5, "double": -np.inf, "flag": True,
            "text": b"x", "binary": b"", "whole": 6,
            "vector": [least, least],
        },
    }  # fmt: skip


def test_a_null_where_none_is_expected_is_an_error(tmp_path):
    path = tmp_path / "file.jsonl"
    path.write_text('{"n": 1}\n{"n": null}\n')
    source = sources.json_lines(path)
    builder = builder_of(source, tmp_path, **source.features(optional=[]))
    with pytest.raises(ExampleError, match="null"):
        builder.download_and_prepare()


def test_rows_that_cannot_be_read_are_errors_or_set_aside(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("n,x\n" + "".join(f"{i},{i / 2}\n" for i in range(200)) + "200,oops\n201\n")
    source = sources.csv(path, types={"x": pa.float32()})
    with pytest.raises(ExampleError) as caught:
        builder_of(source, tmp_path).download_and_prepare()
    message = str(caught.value)
    for part in ("file.csv", "Key: 200", "Feature: x", "a value of type float", "'oops'"):
        assert part in message
    builder = builder_of(source, tmp_path)
    options = my_datasets.BuildOptions(on_error="quarantine", max_quarantined=0.05)
    builder.download_and_prepare(build_options=options)
    assert len(read(builder)) == 200
    (report,) = builder.data_path.glob("*quarantine*")
    entries = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(entry["key"], entry["feature"]) for entry in entries] == [("200", "x"), ("201", "")]


def test_a_builder_without_generator_and_source_is_reported_so(tmp_path):
    class Nothing(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = "nothing"

        def _info(self):
            features = tfds.features.FeaturesDict({"n": np.int64})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

    with pytest.raises(BuilderError, match="'nothing' has no _generate_examples"):
        Nothing(data_dir=tmp_path).download_and_prepare()
