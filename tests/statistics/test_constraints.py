"""What a builder declares of its values, and what comes of values that are otherwise."""

import numpy as np
import pytest

from my_datasets.errors import BuilderError, ConstraintError
from my_datasets.metadata.features import Leaf
from my_datasets.metadata.manifest import Manifest
from my_datasets.statistics.constraints import Constraint, check_declared
from my_datasets.statistics.feature import FeatureStatistics
from tests.building.engines.builds import build
from tests.statistics import rows


def of(constraints, tmp_path, **options):
    class Declared(rows.Statistics, skip_registration=True):
        name = "toy_statistics"
        CONSTRAINTS = constraints

    return build(Declared, tmp_path, **options)


GOOD = {
    "amount": Constraint(minimum=0, maximum=50),
    "small": Constraint(not_null=True, maximum=199),
    "flag": Constraint(allowed=[False, True]),
    "label": Constraint(allowed=["cat", "dog", -1]),
    "text": Constraint(regex="(ä|äö|)*", max_length=80),
    "list": Constraint(max_length=4, allowed=range(4)),
    "image": Constraint(minimum=4, maximum=12, unique=True),
    "sound": Constraint(min_length=0, max_length=89),
    "packed": Constraint(minimum=0, maximum=299),
    "maybe": Constraint(unique=True),
}


def test_what_holds_is_noted(tmp_path):
    version = of(GOOD, tmp_path, workers=2)
    assert Manifest.read(version).constraints["amount"] == {"minimum": 0, "maximum": 50}
    assert Manifest.read(version).constraints["list"]["allowed"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("feature", "constraint", "told"),
    [
        ("amount", Constraint(maximum=42), "maximum is 42; found 42."),
        ("amount", Constraint(not_null=True), "not_null; found nan"),
        ("small", Constraint(minimum=1), "minimum is 1; found 0"),
        ("small", Constraint(unique=True), "unique; found 100 that came before, such as value"),
        ("label", Constraint(not_null=True), "not_null; found -1"),
        ("label", Constraint(allowed=["dog", -1]), "allowed is ['dog', -1]; found 0"),
        ("label", Constraint(all_labels=True), "all_labels; train has no eel"),
        ("text", Constraint(not_null=True), "not_null; found nothing in train"),
        ("text", Constraint(regex="ä*"), "regex is ä*; found äö"),
        ("text", Constraint(max_length=9), "max_length is 9; found"),
        ("text", Constraint(allowed=[""]), "allowed is ['']; found ä"),
        ("list", Constraint(min_length=1), "min_length is 1; found 0"),
        ("image", Constraint(minimum=5), "minimum is 5; found 4 x 8"),
        ("image", Constraint(maximum=11), "maximum is 11; found 6 x 12"),
        ("packed", Constraint(maximum=298), "maximum is 298; found 299.0"),
        ("maybe", Constraint(not_null=True), "not_null; found nothing"),
    ],
)
def test_what_does_not_hold_fails_the_build(tmp_path, feature, constraint, told):
    with pytest.raises(ConstraintError) as raised:
        of({feature: constraint}, tmp_path)
    assert f"{feature}: " in str(raised.value)
    assert told in str(raised.value)
    assert not (tmp_path / "toy_statistics" / "1.0.0").exists()


def test_how_many_are_otherwise_and_where_the_first_is(tmp_path):
    with pytest.raises(ConstraintError, match=r"found -1 in train \(toy_statistics-train.*, record "
                       r"\d+, and 29 more\)"):  # fmt: skip
        of({"label": Constraint(not_null=True)}, tmp_path)


@pytest.mark.parametrize(
    ("constraints", "told"),
    [
        ({"ammount": Constraint(minimum=0)}, "'ammount', which is not a feature"),
        ({"amount": Constraint(regex="a")}, "sets regex of 'amount'"),
        ({"amount": Constraint(max_length=1)}, "sets max_length of 'amount'"),
        ({"label": Constraint(minimum=1)}, "sets minimum of 'label'"),
        ({"image": Constraint(allowed=[1])}, "sets allowed of 'image'"),
        ({"label": Constraint(allowed=["cat", "dgo"])}, "allows 'dgo' for 'label'"),
        ({"small": Constraint(allowed=["1"])}, "allows '1' for 'small'"),
        ({"text": Constraint(allowed=[1])}, "allows 1 for 'text'"),
    ],
)
def test_what_cannot_be_said_is_refused_before_anything_is_done(tmp_path, constraints, told):
    with pytest.raises(BuilderError, match=told):
        of(constraints, tmp_path)
    assert not list(tmp_path.rglob("*.run"))


@pytest.mark.parametrize("classes", [0, 100_001])
def test_classes_that_are_not_counted_cannot_all_be_demanded(classes):
    leaf = Leaf(("y",), "number", "int64", classes=classes)
    with pytest.raises(BuilderError, match="all_labels of 'y', whose classes are not count"):
        check_declared({"y": Constraint(all_labels=True)}, [FeatureStatistics(leaf)], "some")


def test_an_expression_that_is_none_is_refused_at_once():
    with pytest.raises(BuilderError, match="is not a valid regular expression"):
        Constraint(regex="(")


def test_a_build_resumes_once_the_values_are_mended(tmp_path, monkeypatch):
    with pytest.raises(ConstraintError):
        of({"amount": Constraint(maximum=42)}, tmp_path)
    monkeypatch.setattr(rows, "row", lambda i, real=rows.row: {**real(i), "amount": np.float32(1)})
    version = of({"amount": Constraint(maximum=42)}, tmp_path, resume=False)
    assert Manifest.read(version).statistics["train"]["features"]["amount"]["max"] == 1
