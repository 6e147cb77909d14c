"""What stands for missing values, however the examples are read."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.building.options import BuildOptions
from my_datasets.errors import InvalidOptionError, PlanError
from my_datasets.input_pipeline.decode.missing import with_missing
from my_datasets.metadata.features import Leaf

N = 30
KINDS = {
    "age": np.int64, "small": np.uint8, "mass": np.float64, "height": np.float32,
    "half": np.float16, "flag": np.bool_, "name": np.str_,
}  # fmt: skip
PRESENT = {
    "age": lambda i: i, "small": lambda i: i, "mass": lambda i: i / 4, "height": lambda i: i / 2,
    "half": float, "flag": lambda i: True, "name": lambda i: f"name {i}",
}  # fmt: skip


def row(i):
    there = {name: None if i % 3 == 0 else make(i) for name, make in PRESENT.items()}
    pair = None if i % 3 == 0 else [i, i + 1]
    return {**there, "id": i, "inner": {"pair": pair}, "plain": float(i) if i % 2 else np.nan}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    root = tmp_path_factory.mktemp("missing")

    class Patients(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                name: tfds.features.Scalar(dtype, optional=True) for name, dtype in KINDS.items()
            }
            pair = tfds.features.Tensor(shape=(2,), dtype=np.int32, optional=True)
            features |= {"id": np.int64, "plain": np.float32, "inner": {"pair": pair}}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features),
                supervised_keys=("age", "id"),
            )  # fmt: skip

        def _split_generators(self, dl_manager):
            return {"train": ((i, row(i)) for i in range(N))}

    Patients(data_dir=root).download_and_prepare(build_options=BuildOptions(workers=1))
    return {"reference": "patients", "data_dir": root}


def by_source(table, **options):
    return my_datasets.source(**table, **options).columns(range(N))


def by_batches(table, **options):
    (batch,) = my_datasets.batches(
        **table, batch_size=N, shuffle=False, as_supervised=False, **options
    )
    return batch


def by_pipeline(table, **options):
    (batch,) = my_datasets.pipeline(
        **table, batch_size=N, shuffle=False, as_supervised=False, **options
    ).as_numpy_iterator()
    return batch


def by_torch(table, **options):
    options.setdefault("columns", [*KINDS, "id", "inner", "plain"])
    options["columns"] = [name for name in options["columns"] if name != "name"]
    (batch,) = my_datasets.torch_loader(
        **table, batch_size=N, shuffle=False, as_supervised=False, workers=0, **options
    )
    return {
        name: {inner: one.numpy() for inner, one in values.items()}
        if isinstance(values, dict) else np.asarray(values)
        for name, values in batch.items()
    }  # fmt: skip


every_way = pytest.mark.parametrize("read", [by_source, by_batches, by_pipeline, by_torch])


@every_way
def test_by_default_it_is_what_tfds_gives(table, read):
    (theirs,) = tfds.load("patients", data_dir=table["data_dir"], split="train", batch_size=N)
    ours = read(table)
    for name, values in ours.items():
        if name == "inner":
            assert np.array_equal(values["pair"], theirs["inner"]["pair"].numpy())
        else:
            assert values.tolist() == theirs[name].numpy().tolist() or np.array_equal(
                values, theirs[name].numpy(), equal_nan=True
            )
    is_missing = ours["id"] % 3 == 0
    assert set(ours["age"][is_missing].tolist()) == {-(2**63)}
    assert set(ours["mass"][is_missing].tolist()) == {-np.inf}


@every_way
def test_a_mask_says_which_are_missing(table, read):
    found = read(table, missing="mask")
    is_missing = found["id"] % 3 == 0
    assert 0 < is_missing.sum() < N
    for name in set(KINDS) & set(found):
        mask, values = found[f"{name}_is_missing"], found[name]
        assert mask.dtype == bool
        assert np.array_equal(mask, is_missing), name
        empty = b"" if name == "name" else 0
        for i, missing, value in zip(found["id"].tolist(), mask, values.tolist(), strict=True):
            there = PRESENT[name](i)
            assert value == (empty if missing else there.encode() if name == "name" else there)
    assert np.array_equal(found["inner"]["pair_is_missing"], is_missing)
    assert not found["inner"]["pair"][is_missing].any()
    assert np.isnan(found["plain"][found["id"] % 2 == 0]).all()
    assert "plain_is_missing" not in found
    assert "id_is_missing" not in found


@every_way
def test_values_of_choice_stand_for_them(table, read):
    fills = {"age": -1, "mass": np.nan, "inner/pair": 7, "small": 255}
    if read is not by_torch:
        fills["name"] = "nobody"
    found = read(table, missing=fills)
    is_missing = found["id"] % 3 == 0
    assert set(found["age"][is_missing].tolist()) == {-1}
    assert set(found["small"][is_missing].tolist()) == {255}
    assert np.array_equal(np.isnan(found["mass"]), is_missing)
    assert set(found["inner"]["pair"][is_missing].ravel().tolist()) == {7}
    assert np.array_equal(found["age"][~is_missing], found["id"][~is_missing])
    assert set(found["height"][is_missing].tolist()) == {float(np.finfo(np.float32).min)}
    if read is not by_torch:
        assert set(found["name"][is_missing].tolist()) == {b"nobody"}


def test_input_and_target(table):
    options = {**table, "batch_size": N, "shuffle": False}
    ((age, number),) = my_datasets.batches(**options, missing={"age": -1})
    assert np.array_equal(age, np.where(number % 3 == 0, -1, number))
    with pytest.raises(InvalidOptionError, match="names masks"):
        my_datasets.batches(**options, missing="mask")


def test_a_mask_takes_no_name_of_a_feature():
    age = Leaf(("age",), "number", "int64", is_optional=True)
    tree = {"age": age, "age_is_missing": Leaf(("age_is_missing",), "number", "bool")}
    with pytest.raises(InvalidOptionError, match="'age_is_missing', which would be the mask"):
        with_missing(tree, "mask")


def test_a_cache_keeps_them_apart(table, tmp_path):
    options = {
        **table,
        "batch_size": N,
        "as_supervised": False,
        "cache": "disk",
        "epochs": 2,
        "columns": ["age", "id"],
    }
    for missing, said in (("mask", "mask"), ("tfds", "tfds"), ({"age": -1}, "age")):
        plan = my_datasets.plan(**options, cache_dir=tmp_path / said, missing=missing)
        first, second = my_datasets.batches(plan)
        assert sorted(first["age"].tolist()) == sorted(second["age"].tolist())
        assert ("age_is_missing" in second) is (missing == "mask")
    assert "missing={'age': -1}" in plan.explain()
    with pytest.raises(PlanError, match="missing="):
        list(my_datasets.batches(**options, cache_dir=tmp_path / "mask", missing={"age": -1}))


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("masks", "use missing='mask'"), (None, "missing=None"), (-1, "missing=-1"),
        ({}, "'tfds', 'mask', or the value"),
        ({"ago": 1}, "names 'ago'"), ({"plain": 1.0}, "names 'plain'"),
        ({"age": 1.5}, "a number of type int64"), ({"age": "x"}, "a number of type int64"),
        ({"small": -1}, "a number of type uint8"), ({"small": 256}, "a number of type uint8"),
        ({"flag": 1}, "of type bool"), ({"name": 3}, "Expected: a text"),
        ({"mass": True}, "a number of type float64"), ({"age": [1]}, "give 'age' a number"),
        ({"half": 1e9}, "a number of type float16"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said_at_once(table, missing, said):
    for function in (my_datasets.plan, my_datasets.source):
        with pytest.raises(InvalidOptionError, match=said):
            function(**table, missing=missing, as_supervised=False)
