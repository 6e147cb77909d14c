"""Slices of splits, against TFDS's own."""

import pytest
import tensorflow_datasets as tfds
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.errors import SplitNotFoundError
from my_datasets.metadata.subsplits import ExampleRange, resolve

LENGTHS = {"train": [7, 0, 33, 60, 4], "test": [19]}
BOUNDS = st.one_of(
    st.just(""),
    st.integers(-130, 130).map(str),
    st.integers(-120, 120).map("{}%".format),
    st.floats(-100, 100).map("{:.2f}%".format),
    st.integers(-6, 6).map("{}shard".format),
)
SLICES = st.one_of(
    st.just(""),
    st.tuples(BOUNDS, BOUNDS).map("[{0[0]}:{0[1]}]".format),
    BOUNDS.map("[{}]".format),
)
SPECS = st.lists(st.tuples(st.sampled_from(["train", "test"]), SLICES), min_size=1, max_size=3)


def of_tfds(spec):
    infos = tfds.core.splits.SplitDict(
        [
            tfds.core.splits.SplitInfo(name=name, shard_lengths=sizes, num_bytes=0)
            for name, sizes in LENGTHS.items()
        ]
    )
    absolute = tfds.core.ReadInstruction.from_spec(spec).to_absolute(infos)
    totals = {name: sum(sizes) for name, sizes in LENGTHS.items()}
    return [
        ExampleRange(
            one.splitname, one.from_ or 0, totals[one.splitname] if one.to is None else one.to
        )
        for one in absolute
    ]


@given(SPECS.map(lambda parts: "+".join(name + slice_ for name, slice_ in parts)))
def test_it_means_what_tfds_means(spec):
    try:
        expected = of_tfds(spec)
    except (ValueError, TypeError):
        with pytest.raises(SplitNotFoundError):
            resolve(spec, LENGTHS)
        return
    found = resolve(spec, LENGTHS)
    assert [(r.split, list(range(r.begin, r.end))) for r in found] == [
        (r.split, list(range(r.begin, r.end))) for r in expected
    ]


def test_all_is_every_split():
    assert resolve("all", LENGTHS) == [ExampleRange("train", 0, 104), ExampleRange("test", 0, 19)]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("validation", "The splits: train, test"),
        ("train[:200]", "It has 104"),
        ("train[a:b]", "is no split"),
        ("", "is no split"),
    ],
)
def test_what_is_not_there_is_said(spec, said):
    with pytest.raises(SplitNotFoundError, match=said):
        resolve(spec, LENGTHS)
