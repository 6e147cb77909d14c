"""What the manifest declares of splits is proved once more, and what breaks it is named."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import sources
from my_datasets.building.options import BuildOptions
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.records import shuffle_order
from my_datasets.sources import splitting
from my_datasets.verification import shard_reading, split_rules
from my_datasets.verification.split_rules import DistinctValues, SplitColumn
from my_datasets.verification.verifier import Level, verify

PARTS = {"train": 0.7, "validation": 0.1, "test": 0.2}
ROWS = 2000
names = (f"declared_splits_{number}" for number in itertools.count())


def table(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": [f"row-{i}" for i in range(rows)],
            "person": [f"p{n}" for n in rng.integers(0, max(1, rows // 5), rows)],
            "number": rng.integers(0, rows // 5, rows),
            "weight": rng.normal(size=rows),
            "label": rng.choice(["a", "b", "c"], rows, p=[0.7, 0.2, 0.1]),
            "day": pa.array(rng.integers(0, 300, rows), pa.int32()).cast(pa.date32()),
        }
    )


SOURCE = sources.table(table(), key="id")


@dataclasses.dataclass(frozen=True)
class But:
    """A rule, but for some keys."""

    rule: splitting.Rule
    keys: tuple[str, ...]

    def __call__(self, keys, batch):
        texts = [key.decode() for key in keys.to_pylist()]
        return self.rule(keys, batch) ^ np.isin(texts, self.keys)

    def has_key(self, key):
        return self.rule.has_key(key)


def moved(splits, *keys, between=("train", "test")):
    """Returns splits of which some rows are in the other of two, whatever is declared."""
    return {
        name: dataclasses.replace(
            part,
            generate=splitting.SplitPart(part.generate.generate, But(part.generate.rule, keys)),
        )
        if name in between
        else part
        for name, part in splits.items()
    }


def build(directory, splits, columns=None, *, limit=None, labels=None, **options):
    chosen = {
        name: part.select(columns) if columns and part.schema.names != columns else part
        for name, part in splits.items()
    }

    class Declared(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = next(names)

        def _info(self):
            features = next(iter(chosen.values())).features(labels)
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return chosen

    builder = Declared(data_dir=directory)
    config = tfds.download.DownloadConfig(num_shards=2, max_examples_per_split=limit)
    builder.download_and_prepare(
        download_config=config, build_options=BuildOptions(workers=1, **options)
    )
    return Path(builder.data_dir)


def looked(path):
    report = verify(path, level=Level.DEEP, workers=1)
    assert report.digest == (Manifest.read(path).content.digest if report.is_good else None)
    issues = [issue for issue in report.issues if issue.code not in ("leak", "duplicates")]
    return issues, list(report.not_checked)


def rows_of(splits, name, column):
    """Returns the (key, value) pairs of a split, as the source gives them."""
    found = []
    for keys, batch in splits[name]:
        ids = batch.column(keys) if isinstance(keys, str) else keys
        found += zip(ids.to_pylist(), batch.column(column).to_pylist(), strict=True)
    return found


ALL = ["id", "person", "number", "label"]
GOOD = {
    "by keys": lambda: SOURCE.split(PARTS),
    "by groups": lambda: SOURCE.split(PARTS, group="person"),
    "by groups that are numbers": lambda: SOURCE.split(PARTS, group="number", salt="x"),
    "by groups that are classes": lambda: SOURCE.split(
        {"train": 0.5, "test": 0.5}, group="label", salt="1"
    ),
    "some rows left out": lambda: SOURCE.split({"b": 0.3, "a": 0.11}, group="person"),
    "folds": lambda: SOURCE.folds(11, group="person"),
    "strata": lambda: SOURCE.split(PARTS, stratify="label"),
    "strata of many values": lambda: SOURCE.split(PARTS, stratify="person"),
    "strata of which some are left out": lambda: SOURCE.split(
        {"b": 0.31, "a": 0.17}, stratify="person"
    ),
    "by values": lambda: SOURCE.split_by("label", {"train": ["a", "c"], "test": ["b", "d"]}),
    "by numbers": lambda: SOURCE.split_by(
        "number", {"train": list(range(200)), "test": list(range(200, 400))}
    ),
    "split twice": lambda: {
        "test": SOURCE.split({"rest": 0.8, "test": 0.2}, group="person")["test"],
        **SOURCE.split({"rest": 0.8, "test": 0.2}, group="person")["rest"].split(
            {"train": 0.9, "validation": 0.1}, group="person", salt="once more"
        ),
    },
    "under other names": lambda: dict(
        zip("xyz", SOURCE.split(PARTS, group="person").values(), strict=True)
    ),
}


@pytest.mark.parametrize("how", GOOD)
def test_no_false_alarm(tmp_path, how):
    issues, notes = looked(build(tmp_path, GOOD[how](), ALL))
    assert issues == []
    assert all("keys are not stored" in note for note in notes)
    assert bool(notes) == (how == "by keys")


def test_a_label_is_compared_by_its_name(tmp_path):
    halves = {"train": 0.5, "test": 0.5}
    for how in ({"group": "label", "salt": "1"}, {"stratify": "label"}):
        path = build(tmp_path, SOURCE.split(halves, **how), ALL, labels={"label": ["c", "b", "a"]})
        assert looked(path) == ([], [])


def test_an_example_of_a_group_in_another_split(tmp_path):
    """The golden case: the manifest is honest about all but the rule."""
    splits = SOURCE.split(PARTS, group="person")
    train = rows_of(splits, "train", "person")
    people = [person for _, person in train]
    key, person = next(row for row in train if people.count(row[1]) > 1)
    path = build(tmp_path, moved(splits, key), ["person", "number", "label"])
    (found,), notes = looked(path)
    assert (found.code, found.severity) == ("group-in-two-splits", "error")
    assert found.node == f"splits train and test, feature person, value {person!r}"
    assert found.problem == "1 group is in both splits."
    assert found.expected == "all examples with the same person in the same split"
    assert found.fix.startswith(
        "rebuild the version, or pull it again; if rows were moved on purpose"
    )
    # Where they are said to be, they are.
    (told,) = found.found.split("; ")
    value, places = told.split(": ")
    assert value == repr(person)
    for split, place in zip(("train", "test"), places.split(" and "), strict=True):
        assert place.startswith(f"split {split}, ")
        shard, record = place.removeprefix(f"split {split}, ").split(", record ")
        before = sum(
            one.examples
            for one in Manifest.read(path).content.splits[split].shards
            if one.name < shard
        )
        example = my_datasets.source(str(path), split=split)[before + int(record)]
        assert example["person"].decode() == person
    assert notes == []


def test_a_whole_group_in_another_split(tmp_path):
    splits = SOURCE.split(PARTS, group="number")
    train = rows_of(splits, "train", "number")
    number = train[0][1]
    keys = [key for key, value in train if value == number]
    (found,), _ = looked(build(tmp_path, moved(splits, *keys), ALL))
    assert found.code == "group-in-another-split"
    assert found.node == f"split test, feature number, value {number}"
    assert found.problem == "1 of its groups is in the wrong split."
    assert found.found.endswith("it belongs in split train")


def upper(batch):
    people = pc.utf8_upper(batch.column("person"))
    return batch.set_column(batch.schema.get_field_index("person"), "person", people)


def test_groups_that_are_stored_as_other_texts_must_still_be_in_one_split(tmp_path):
    splits = SOURCE.split(PARTS, group="person")
    mapped = {name: part.map(upper) for name, part in splits.items()}
    issues, notes = looked(build(tmp_path, mapped, ALL))
    assert issues == []
    assert ["differently than in the source" in note for note in notes] == [True]
    train = rows_of(splits, "train", "person")
    key = next(k for k, person in train if [p for _, p in train].count(person) > 1)
    mapped = {name: part.map(upper) for name, part in moved(splits, key).items()}
    (found,), _ = looked(build(tmp_path, mapped, ALL))
    assert found.code == "group-in-two-splits"
    assert ", value 'P" in found.node


@pytest.mark.parametrize("group", ["day", "number"])
def test_groups_of_any_type(tmp_path, group):
    path = build(tmp_path, SOURCE.split(PARTS, group=group), ["day", "number"])
    assert looked(path) == ([], [])


def test_shares_that_chance_does_not_give(tmp_path):
    splits = SOURCE.split(PARTS)
    keys = [key for key, _ in rows_of(splits, "test", "label")][:250]
    issues, _ = looked(build(tmp_path, moved(splits, *keys), ALL))
    assert [(i.code, i.node) for i in issues] == [
        ("split-share", "split test"),
        ("split-share", "split train"),
    ]
    assert issues[0].problem.startswith("The split's share of the examples is implausible")
    assert "of 2,000 for a share of 0.2 (other numbers have a probability below 1e-09)" in (
        issues[0].expected
    )


def test_a_row_of_a_class_in_another_split(tmp_path):
    splits = SOURCE.split(PARTS, stratify="label")
    key = next(key for key, label in rows_of(splits, "test", "label") if label == "c")
    total = table().to_pydict()["label"].count("c")
    expected = round(total * (0.7 + 0.1 + 0.2)) - round(total * (0.7 + 0.1))
    (found,), _ = looked(build(tmp_path, moved(splits, key), ALL))
    assert (found.code, found.node) == ("stratum", "split train, feature label, value 'c'")
    train = round(total * 0.7)
    assert found.expected == f"{train} of {total} for a share of 0.7"
    assert found.found == str(train + 1)
    assert expected > 0


def test_many_classes_with_other_shares(tmp_path):
    splits = SOURCE.split({"train": 0.5, "test": 0.3}, stratify="person")
    keys = [key for key, _ in rows_of(splits, "test", "person")][:300]
    issues, _ = looked(build(tmp_path, moved(splits, *keys), ALL))
    assert {issue.code for issue in issues} == {"stratum"}
    assert len(issues) == 5
    assert "This is so for " in issues[0].problem


def test_a_value_in_another_split(tmp_path):
    splits = SOURCE.split_by("label", {"train": ["a", "b"], "test": ["c"]})
    key = rows_of(splits, "train", "label")[0]
    (found,), _ = looked(build(tmp_path, moved(splits, key[0]), ALL))
    assert found.code == "value-in-another-split"
    assert found.node == f"split test, feature label, value {key[1]!r}"
    assert found.expected == "'c'"
    assert found.found.endswith("by the rule they belong in train")


@pytest.mark.parametrize(
    ("how", "columns", "said"),
    [
        ({"group": "person"}, ["id", "label"], "it is not stored"),
        ({"group": "weight"}, ["id", "weight"], "floating-point"),
        ({"stratify": "person"}, ["label"], "it is not stored"),
    ],
)
def test_what_cannot_be_proved_is_said(tmp_path, how, columns, said):
    issues, notes = looked(build(tmp_path, SOURCE.split(PARTS, **how), columns))
    assert issues == []
    (note,) = notes
    assert note.startswith("whether splits train, validation, test are as declared by ")
    assert said in note


@pytest.mark.parametrize("how", [{}, {"stratify": "label"}, {"group": "person"}])
def test_of_a_sample_shares_are_not_proved(tmp_path, how):
    issues, notes = looked(build(tmp_path, SOURCE.split(PARTS, **how), ALL, limit=50))
    assert issues == []
    assert any("only some of their examples were built" in note for note in notes)


def test_rows_that_were_set_aside_are_allowed_for(tmp_path):
    wrong = pa.array([-1 if i % 9 == 0 else i for i in range(ROWS)])
    data = table().drop_columns(["number"]).append_column("number", wrong)
    splits = sources.table(data, key="id").split(PARTS, stratify="label")

    class Unsigned(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = next(names)

        def _info(self):
            features = {"number": np.uint16, "label": tfds.features.Text()}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {name: part.select(["number", "label"]) for name, part in splits.items()}

    builder = Unsigned(data_dir=tmp_path)
    builder.download_and_prepare(
        build_options=BuildOptions(workers=1, on_error="quarantine", max_quarantined=0.5)
    )
    assert Manifest.read(builder.data_path).quarantined
    assert looked(builder.data_path) == ([], [])


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"parts": {"train": 1.0}, "part": "train"},
        {"parts": {"train": 7}, "order": ["train"], "part": "train", "group": None,
         "stratify": None, "salt": ""},
        {"parts": {"train": 1.0}, "order": ["train"], "part": "other", "group": None,
         "stratify": None, "salt": ""},
        {"parts": [], "order": 3, "part": {}, "group": None, "stratify": None, "salt": ""},
        {"groups": 3, "column": None, "part": "train"},
    ],
)  # fmt: skip
def test_a_rule_that_is_not_known_is_no_error(tmp_path, rule):
    path = build(tmp_path, SOURCE.split({"train": 1.0}), ["label", "id"])
    manifest = Manifest.read(path)
    dataclasses.replace(manifest, splits={"train": rule}).write(path)
    issues, notes = looked(path)
    assert issues == []
    (note,) = notes
    assert note.startswith("whether the rows of split train follow their rule: ")


def test_pieces_of_any_size_give_the_same(tmp_path, monkeypatch):
    splits = SOURCE.split(PARTS, group="person")
    train = rows_of(splits, "train", "person")
    keys = [key for key, _ in train[:40]]
    path = build(tmp_path, moved(splits, *keys), ALL)
    whole = looked(path)
    assert {i.code for i in whole[0]} >= {"group-in-two-splits"}
    pieces = SplitColumn.pieces
    monkeypatch.setattr(SplitColumn, "pieces", lambda self: pieces(self, 500))
    assert looked(path) == whole


@pytest.mark.parametrize("at_once", [1 << 20, 900])
def test_each_value_is_counted_and_placed(tmp_path, at_once):
    """Against the examples as they are read, over both shards of each split."""
    path = build(tmp_path, SOURCE.split(PARTS), ["person", "number"])
    declared, content = Declared.read(path), Manifest.read(path).content
    (leaf,) = [leaf for leaf in VersionMetadata(path).known_leaves if leaf.name == "person"]
    watch = split_rules.ColumnHashes("w", leaf, "salt")
    shards = {}
    for split, some in declared.splits.items():
        begin, examples = 0, list(my_datasets.source(str(path), split=split))
        shards[split] = []
        for number, one in enumerate(some):
            notes = tmp_path / f"{split}{number}"
            noted = shard_reading.ObservedShard(path / one.name, "tfrecord", one.examples, notes)
            with watch.noting(noted.of(watch)) as take:
                people = [example["person"] for example in examples[begin:][: one.examples]]
                for first in range(0, len(people), 100):
                    take({"person": np.array(people[first : first + 100], object)})
            begin += one.examples
            shards[split].append(noted)
        assert begin == content.splits[split].examples
    column = SplitColumn(watch, shards)
    found = {split: {} for split in shards}
    for piece in column.pieces(at_once):
        for split, values in piece.items():
            for first, count in zip(values.first.tolist(), values.counts.tolist(), strict=True):
                value = column.value(split, first)
                assert value not in found[split]
                found[split][value] = first, count
    for split in shards:
        people = [
            example["person"].decode() for example in my_datasets.source(str(path), split=split)
        ]
        assert found[split] == {
            repr(person): (people.index(person), people.count(person)) for person in people
        }


def test_columns_that_have_other_names_now(tmp_path):
    splits = SOURCE.split(PARTS, group="person")
    train = rows_of(splits, "train", "person")
    key = next(k for k, person in train if [p for _, p in train].count(person) > 1)
    names = {"id": "id", "who": "person", "person": "label"}
    twice = {"whose": "who", "person": "person"}
    for chosen, code in ((splits, None), (moved(splits, key), "group-in-two-splits")):
        renamed = {name: part.select(names).select(twice) for name, part in chosen.items()}
        issues, notes = looked(build(tmp_path, renamed))
        assert [issue.code for issue in issues] == ([code] if code else [])
        assert notes == []
    assert ", feature whose, value 'p" in issues[0].node
    # Another column has the name of the one by which rows were split.
    other = {name: part.select({"person": "label"}) for name, part in splits.items()}
    issues, notes = looked(build(tmp_path, other))
    assert issues == []
    assert "are as declared by person: it is not stored" in notes[0]


def test_places_are_those_of_the_split(tmp_path):
    """What is recomputed is what `split` did: an oracle by hand."""
    texts = pa.array([b"p1", b"p2", b""], pa.large_binary())
    keys = split_rules.hashes("s", texts)
    values = DistinctValues(keys, np.zeros(3, np.int64), np.ones(3, np.int64))
    expected = shuffle_order.hash_keys("my_datasets split s", texts)[0]
    assert values.places.tolist() == expected.tolist()
