"""Splits of one source."""

import json

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_datasets as tfds
from hypothesis import given
from hypothesis import strategies as st

import my_datasets
from my_datasets import sources
from my_datasets.building.units import InvalidValue
from my_datasets.errors import SourceError
from my_datasets.sources.source import Source
from tests.sources.reading import rows_of

PARTS = {"train": 0.7, "validation": 0.1, "test": 0.2}


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": [f"row-{i}" for i in range(rows)],
            "person": [f"p{n}" for n in rng.integers(0, max(1, rows // 5), rows)],
            "label": rng.choice(["a", "b", "c"], rows, p=[0.7, 0.2, 0.1]),
        }
    )


def sides(splits):
    """Returns the split of each key; none is in two."""
    found = {}
    for name, source in splits.items():
        rows, _ = rows_of(source)
        assert not rows.keys() & found.keys()
        found |= dict.fromkeys(rows, name)
    return found


def shares(found):
    return {name: list(found.values()).count(name) / len(found) for name in PARTS}


@given(st.integers(1, 300), st.sampled_from([None, "person", "label"]), st.booleans())
def test_each_row_is_in_one_split(rows, group, with_key):
    source = sources.table(table(rows), key="id" if with_key else None)
    assert len(sides(source.split(PARTS, group=group))) == rows
    assert len(sides(source.split(PARTS, stratify="label"))) == rows
    assert len(sides(source.folds(3))) == rows


def test_shares_are_about_those_asked_for():
    found = sides(sources.table(table(5000), key="id").split(PARTS))
    assert shares(found) == pytest.approx(PARTS, abs=0.03)
    some = sources.table(table(5000), key="id").split({"train": 0.1})
    assert len(sides(some)) == pytest.approx(500, abs=80)


def test_rows_stay_where_they_are_when_others_come():
    few = sides(sources.table(table(500), key="id").split(PARTS))
    many = sides(sources.table(table(2000), key="id").split(PARTS))
    assert {key: many[key] for key in few} == few
    assert sides(sources.table(table(500), key="id").split(PARTS, salt="other")) != few


def test_groups_are_on_one_side():
    data = table(3000)
    found = sides(sources.table(data, key="id").split(PARTS, group="person"))
    people = dict(zip(data["id"].to_pylist(), data["person"].to_pylist(), strict=True))
    by_person = {}
    for key, side in found.items():
        by_person.setdefault(people[key], set()).add(side)
    assert all(len(side) == 1 for side in by_person.values())
    assert {side for (side,) in by_person.values()} == set(PARTS)


def test_strata_have_their_shares_to_a_row():
    data = table(3000)
    found = sides(sources.table(data, key="id").split(PARTS, stratify="label"))
    labels = dict(zip(data["id"].to_pylist(), data["label"].to_pylist(), strict=True))
    for label in "abc":
        of_it = [side for key, side in found.items() if labels[key] == label]
        for name, share in PARTS.items():
            assert abs(of_it.count(name) - share * len(of_it)) <= 1


def test_a_class_that_is_new_after_the_split_was_computed_is_reported(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("label\na\nb\na\nb\n")
    split = sources.csv(path).split({"train": 0.5, "test": 0.5}, stratify="label")
    path.write_text("label\na\nb\nc\na\n")
    with pytest.raises(SourceError, match=r"the class 'c', which it did not have"):
        sides(split)


@pytest.mark.parametrize("labels", [["a", None, "b"], [1.0, float("nan"), 2.0], [1, None, 3]])
@pytest.mark.parametrize("how", [{"stratify": "label"}, {"group": "label"}])
def test_rows_without_a_class_or_a_group_are_in_one_split_too(labels, how):
    data = pa.table({"id": [f"r{i}" for i in range(300)], "label": pa.array(labels * 100)})
    assert len(sides(sources.table(data, key="id").split(PARTS, **how))) == 300


def test_by_the_values_of_a_column():
    data = table(300)
    splits = sources.table(data, key="id").split_by("label", {"train": ["a", "b"], "test": ["c"]})
    for name, labels in (("train", {"a", "b"}), ("test", {"c"})):
        assert {row["label"] for row in rows_of(splits[name])[0].values()} == labels
    assert len(sides(sources.table(data).split_by("label", {"train": ["a"]}))) == sum(
        label == "a" for label in data["label"].to_pylist()
    )


@pytest.mark.parametrize("how", [{}, {"group": "n"}, {"stratify": "n"}, None])
def test_rows_that_cannot_be_read_are_in_one_split(how):
    def generate(item):
        for i in range(20):
            yield f"bad-{item}-{i}", InvalidValue("n", "a number", "none")
        yield pa.array([f"good-{item}"]), pa.RecordBatch.from_pydict({"n": [item]})

    source = Source(generate, [0, 1], pa.schema({"n": pa.int64()}))
    splits = (
        source.split_by("n", {"train": [0], "test": [1]}) if how is None
        else source.split(PARTS, **how)
    )  # fmt: skip
    bad = [key for part in splits.values() for key in rows_of(part)[1]]
    assert len(bad) == len(set(bad)) == 40


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s: s.split({}), "The parts are"),
        (lambda s: s.split({"a": 0.9, "b": 0.2}), "The parts are"),
        (lambda s: s.split({"a": 1.0, "b": 0.0}), "The parts are"),
        (lambda s: s.split(PARTS, group="x"), "no column 'x'"),
        (lambda s: s.split(PARTS, stratify="x"), "no column 'x'"),
        (lambda s: s.split(PARTS, group="person", stratify="label"), "choose one of them"),
        (lambda s: s.split(PARTS, group="tags"), "contains lists or structs"),
        (lambda s: s.split(PARTS, stratify="tags"), "contains lists or structs"),
        (lambda s: s.split_by("x", {"a": [1]}), "no column 'x'"),
        (lambda s: s.split_by("label", {"t": ["a"], "u": ["a"]}), "is in two splits"),
        (lambda s: s.folds(1), "at least two"),
    ],
)
def test_what_cannot_be_is_said(call, said):
    with pytest.raises(SourceError, match=said):
        call(sources.table(table(10).append_column("tags", [[["a", "b"]] * 10])))


def test_what_was_declared_is_in_the_manifest(tmp_path):
    source = sources.table(table(300), key="id").select(["id", "person", "label"])

    class Split(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=source.features())

        def _split_generators(self, dl_manager):
            return source.split(PARTS, group="person")

    builder = Split(data_dir=tmp_path)
    builder.download_and_prepare()
    sizes = {name: split.num_examples for name, split in builder.info.splits.items()}
    assert sum(sizes.values()) == 300
    assert sizes.keys() == PARTS.keys()
    manifest = json.loads((builder.data_path / "my_datasets_manifest.json").read_text())
    rule = {
        "parts": PARTS, "order": list(PARTS), "group": "person", "stratify": None, "salt": "",
    }  # fmt: skip
    assert manifest["splits"] == {name: {**rule, "part": name} for name in PARTS}


def test_a_part_is_not_split_again_by_the_same_numbers():
    source = sources.arrays({"n": np.arange(1000)})
    part = source.split({"train": 0.5, "rest": 0.5})["rest"]
    with pytest.raises(SourceError, match="pass another one, such as salt='again'"):
        part.split({"validation": 0.5, "test": 0.5})
    halves = part.split({"validation": 0.5, "test": 0.5}, salt="again")
    assert all(200 < len(rows_of(half)[0]) < 300 for half in halves.values())
    # Groups, and classes, have numbers of their own.
    part.split({"a": 0.5, "b": 0.5}, group="n")
    part.split({"a": 0.5, "b": 0.5}, stratify="n")
