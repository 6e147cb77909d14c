"""Rules of splits in words."""

import pyarrow as pa
import pytest

from my_datasets import sources
from my_datasets.catalog import plots

SHARES = {"train": 0.8, "test": 0.2}


@pytest.fixture
def source():
    columns = {
        "id": range(100),
        "place": [f"p{i % 9}" for i in range(100)],
        "kind": ["a", "b"] * 50,
    }
    return sources.table(pa.table({name: list(some) for name, some in columns.items()}), key="id")


@pytest.mark.parametrize(
    ("options", "said"),
    [({}, "80 % of the rows, chosen by their keys"),
     ({"group": "place"}, "80 % of the rows; those of the same place together"),
     ({"stratify": "kind"}, "80 % of the rows, chosen by their keys, the same of each kind")],
)  # fmt: skip
def test_shares_in_words(source, options, said):
    assert plots.rule(source.split(SHARES, **options)["train"].declared) == said


def test_folds_and_columns_in_words(source):
    fold = source.folds(4)["fold_1"].declared
    assert plots.rule(fold) == "25 % of the rows, chosen by their keys"
    groups = source.split_by("place", {"train": ["p0", "p1"], "test": ["p2"]})
    assert plots.rule(groups["train"].declared) == "where place is p0, p1"


@pytest.mark.parametrize("rule", [{}, {"parts": 3}, {"column": "a"}, {"parts": {}, "part": "x"}])
def test_rules_of_others_are_shown_as_they_are(rule):
    assert plots.rule(rule).startswith("{")
