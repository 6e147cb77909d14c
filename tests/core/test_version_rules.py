"""What changes ask of a version number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.core import version
from my_datasets.core.version import RULES, Bump, ChangeKind, VersionChange, VersionNumber

VERSIONS = st.builds(VersionNumber, *[st.integers(0, 20)] * 3)


def test_each_kind_has_a_rule_with_a_reason():
    assert RULES.keys() == set(ChangeKind)
    for bump, reason in RULES.values():
        assert bump > Bump.NONE
        assert len(reason) > 20
        assert not reason.endswith(".")


def test_what_asks_for_most_counts():
    some = [
        VersionChange(ChangeKind.SHARDS, "split train"),
        VersionChange(ChangeKind.FEATURE_ADDED, "feature x"),
    ]
    assert version.required([]) is Bump.NONE
    assert version.required(some[:1]) is Bump.PATCH
    assert version.required(some) is Bump.MINOR
    assert (
        version.required([*some, VersionChange(ChangeKind.SPLIT_REMOVED, "split test")])
        is Bump.MAJOR
    )
    assert some[1].to_json()["bump"] == "minor"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("1.0.0", "1.0.0", Bump.NONE), ("1.0.0", "1.0.1", Bump.PATCH),
        ("1.0.5", "1.1.0", Bump.MINOR), ("1.9.9", "2.0.0", Bump.MAJOR),
        ("1.0.0", "3.1.4", Bump.MAJOR), ("1.1.0", "1.0.9", None), ("2.0.0", "1.9.9", None),
        ("1.0.9", "1.0.10", Bump.PATCH),
    ],
)  # fmt: skip
def test_by_which_number_a_version_was_raised(old, new, expected):
    assert version.between(VersionNumber.parse(old), VersionNumber.parse(new)) == expected


@given(VERSIONS, st.sampled_from(Bump), VERSIONS)
def test_the_least_version_is_enough_and_none_below_it(old, bump, other):
    least = version.least(old, bump)
    assert version.between(old, least) == bump
    actual = version.between(old, other)
    assert (actual is not None and actual >= bump) == (other >= least)
