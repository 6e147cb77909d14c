"""Decoded examples that are kept."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest

import my_datasets
from my_datasets.errors import PlanError
from my_datasets.input_pipeline.decode import images
from my_datasets.input_pipeline.decode.example_cache import ExampleCache
from my_datasets.input_pipeline.plan.planner import plan
from my_datasets.metadata.features import Leaf

PLAIN = ["vector", "label", "matrix", "grey"]


def all_of(batches):
    return [{name: values.tolist() for name, values in batch.items()} for batch in batches]


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_later_epochs_are_the_same_and_decode_nothing(data_dir, tmp_path, monkeypatch, kind):
    options = {"columns": PLAIN, "epochs": 3, "batch_size": 32, "data_dir": data_dir, "seed": 4,
               "workers": 1}  # fmt: skip
    expected = all_of(my_datasets.batches("everything", **options))
    kept = {"cache": kind, "cache_dir": tmp_path / "cache" if kind == "disk" else None}
    decoded = []
    real = images.ImageDecoder.__call__
    monkeypatch.setattr(
        images.ImageDecoder,
        "__call__",
        lambda self, *data: (decoded.append(1), real(self, *data))[1],
    )
    made = plan("everything", **options, **kept)
    decoded.clear()
    assert all_of(my_datasets.batches(made)) == expected
    assert 250 <= len(decoded) <= 251  # one more tells the form of those that lie on disk
    if kind == "disk":
        decoded.clear()
        assert all_of(my_datasets.batches(made)) == expected
        assert len(decoded) <= 1


def test_threads_fill_it_together():
    class Numbers:
        tree: ClassVar = {
            "n": Leaf(("n",), "number", "int64"),
            "t": Leaf(("t",), "bytes", "object"),
        }

        def __len__(self):
            return 1000

        def columns(self, numbers, _):
            return {"n": numbers * 2, "t": np.array([b"%d" % n for n in numbers], object)}

    cache = ExampleCache(Numbers())
    orders = [np.random.default_rng(i).permutation(1000)[:300] for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for numbers, found in zip(
            orders, pool.map(lambda numbers: cache.columns(numbers, 0), orders), strict=True
        ):
            assert found["n"].tolist() == (numbers * 2).tolist()
            assert found["t"].tolist() == [b"%d" % n for n in numbers]
    assert cache.columns(np.arange(5), 0)["n"].tolist() == [0, 2, 4, 6, 8]


def test_a_directory_of_another_plan_is_not_mixed(data_dir, tmp_path):
    options = {"columns": ["grey"], "cache": "disk", "cache_dir": tmp_path, "data_dir": data_dir}
    list(my_datasets.batches("everything", **options))
    for other, said in (
        ({"columns": ["matrix"]}, "columns"), ({"image_size": (3, 3)}, "image_size"),
        ({"split": "test"}, "split"),
    ):  # fmt: skip
        with pytest.raises(PlanError, match=f"another plan.*\n.*{said}"):
            list(my_datasets.batches("everything", **{**options, **other}))
    list(my_datasets.batches("everything", **{**options, "seed": 9, "batch_size": 3}))


def test_a_directory_of_the_same_version_built_anew_is_not_mixed(data_dir, tmp_path):
    root = shutil.copytree(data_dir, tmp_path / "data")
    options = {"columns": ["grey"], "cache": "disk", "cache_dir": tmp_path / "cache"}
    list(my_datasets.batches("everything", data_dir=root, **options))
    for shard in (root / "everything" / "1.2.0").glob("*tfrecord*"):
        os.utime(shard)
    with pytest.raises(PlanError, match=r"another plan.*\n.*modified"):
        list(my_datasets.batches("everything", data_dir=root, **options))


def test_what_cannot_lie_on_disk_is_said(data_dir, tmp_path):
    with pytest.raises(PlanError, match="cannot be cached on disk"):
        list(
            my_datasets.batches(
                "everything", columns=["text"], cache="disk", cache_dir=tmp_path, data_dir=data_dir
            )
        )


def test_auto_keeps_what_fits_and_is_used_again(data_dir):
    def kind(**options):
        found = plan("everything", data_dir=data_dir, cache="auto", **options)
        return [stage.kind for stage in found.stages if type(stage).__name__ == "Cache"]

    assert kind(epochs=2) == ["memory"]
    assert kind(epochs=1) == []
    assert kind(epochs=None, memory="300kB", as_supervised=False) == []
