from hypothesis import given
from hypothesis import strategies as st
from tensorflow_datasets.core import utils as tfds_utils

from my_datasets.core.version import VersionNumber, VersionPattern

numbers = st.integers(0, 10**6)
versions = st.builds(VersionNumber, numbers, numbers, numbers)
small = st.integers(0, 2)
patterns = st.builds(VersionPattern, *[st.none() | small] * 3)


@given(versions)
def test_a_version_reads_back_as_itself(version):
    assert VersionNumber.parse(str(version)) == version


@given(patterns)
def test_a_pattern_reads_back_as_itself(pattern):
    assert VersionPattern.parse(str(pattern)) == pattern


@given(versions, versions)
def test_order_agrees_with_tfds(one, other):
    theirs = tfds_utils.Version(str(one)) < tfds_utils.Version(str(other))
    assert (one < other) == theirs


@given(st.text(max_size=8))
def test_what_is_not_a_version_is_none(text):
    version = VersionNumber.parse(text)
    assert version is None or str(version) == text


def test_leading_zeros_and_foreign_digits_are_refused():
    assert VersionNumber.parse("01.0.0") is None
    assert VersionNumber.parse("1.0.٣") is None
    assert VersionPattern.parse("1.0.0\n") is None
