"""Units: what identifies one, so that finished work is taken up only for the same input."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from my_datasets.building.units import Units


@dataclass(frozen=True)
class Part:
    path: Path
    begin: int
    end: int


def identity(item):
    (text,) = Units(iter, [item]).identities()
    return text


@pytest.mark.parametrize("wrap", [str, Path, lambda path: [path, 1], lambda path: {"in": path}])
def test_a_file_counts_by_its_size_and_time_wherever_it_is_named(tmp_path, wrap):
    path = tmp_path / "a.csv"
    absent = identity(wrap(path))
    path.write_text("1")
    os.utime(path, ns=(1, 1))
    first = identity(wrap(path))
    assert identity(wrap(path)) == first != absent
    os.utime(path, ns=(1, 2))
    later = identity(wrap(path))
    path.write_text("22")
    os.utime(path, ns=(1, 2))
    assert len({first, later, identity(wrap(path))}) == 3


def test_a_dataclass_counts_by_its_fields_and_their_files(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1")
    part = Part(path, 0, 10)
    first = identity(part)
    assert identity(replace(part)) == first
    assert identity(replace(part, end=11)) != first
    path.write_text("22")
    assert identity(part) != first


def test_other_objects_count_by_what_pickle_says():
    assert identity(frozenset({1})) == identity(frozenset({1})) != identity(frozenset({2}))


def test_what_cannot_be_pickled_counts_by_its_kind():
    assert identity(lambda: 1) == identity(lambda: 2) == "function"
