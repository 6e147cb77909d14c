"""Plots: what is drawn is what was counted, and is told to whoever does not see it."""

import re

import numpy as np
import pytest

from my_datasets.catalog import plots
from my_datasets.catalog.plots import Histogram
from my_datasets.statistics.sketches import Distribution
from my_datasets.statistics.values import summary_of
from tests.catalog.markup import HOSTILE, require_harmless, svg


def histogram_of(values):
    distribution = Distribution()
    distribution.add(np.array(values, np.float64))
    return Histogram.of(summary_of(distribution))


def bars_of(drawn):
    """Returns left, right and height of each bar of a histogram."""
    (path,) = [one for one in svg(drawn).iter("path") if one.get("class") == "bars"]
    found = re.findall(r"M([\d.]+) 64V([\d.]+)H([\d.]+)V64z", path.get("d"))
    return [(float(a), float(c), 64 - float(b)) for a, b, c in found]


def test_the_bars_of_a_histogram_are_its_counts():
    values = np.random.default_rng(1).normal(size=1000)
    counts, _ = np.histogram(values, 20)
    found = bars_of(plots.histogram(histogram_of(values), "x"))
    expected = [max(1, 64 * count / counts.max()) for count in counts if count]
    # A number near an edge may be in the bin beside it.
    assert [one[2] for one in found] == pytest.approx(expected, abs=64 / counts.max() * 4)
    assert found[0][0] == 0
    assert found[-1][1] == pytest.approx(240, abs=1)


@pytest.mark.parametrize(
    "values", [[5], [0, 0], [1e308, -1e308], [1e-300, 2e-300], [-7, -7, 3], [0, 1e308]]
)
def test_numbers_that_are_hard_to_draw(values):
    drawn = plots.histogram(histogram_of(values), "x")
    assert "nan" not in drawn
    assert "inf" not in drawn
    assert all(
        0 <= left <= right <= 240.5 and 1 <= high <= 64 for left, right, high in bars_of(drawn)
    )


def test_a_histogram_is_described_in_words():
    drawn = svg(plots.histogram(histogram_of(range(101)), "Values of x in train"))
    assert drawn.get("role") == "img"
    said = "101 values from 0 to 100. Half of them are from 25 to 75. The median is 50."
    assert drawn.get("aria-label") == f"Values of x in train: {said}"
    assert (drawn.find("title").text, drawn.find("desc").text) == ("Values of x in train", said)


def test_histograms_that_are_compared_have_one_axis_and_the_same_area():
    before, after = histogram_of(np.linspace(0, 10, 500)), histogram_of(np.linspace(0, 20, 9000))
    drawn = plots.overlaid(before, after, "x")
    shown = bars_of(drawn)
    (line,) = [one for one in svg(drawn).iter("path") if one.get("class") == "before"]
    (top,) = {float(y) for y in re.findall(r"V([\d.]+)H", line.get("d"))} - {64.0}
    # Half as long for the same share of the values: twice as high.
    assert 64 - top == pytest.approx(64, abs=2)
    assert np.mean([one[2] for one in shown]) == pytest.approx(32, abs=2)
    assert max(float(x) for x in re.findall(r"H([\d.]+)", line.get("d"))) == pytest.approx(
        120, abs=1
    )


def test_bars():
    drawn = svg(plots.bars({"cat": 180, "dog": 90, "eel": 0}, "Classes"))
    widths = [float(one.get("width")) for one in drawn.iter("rect")]
    assert widths == pytest.approx([96, 48, 0.5])
    assert [one.text for one in drawn.iter("text")] == ["cat", "180", "dog", "90", "eel", "0"]
    assert "cat: 180 (66.7 %); dog: 90 (33.3 %); eel: 0 (0 %)" in drawn.get("aria-label")


def test_of_many_values_the_most_frequent_ones_are_shown():
    counts = {f"value {i}": i for i in range(100)}
    drawn = svg(plots.bars(counts, "Classes"))
    texts = [one.text for one in drawn.iter("text")]
    assert texts[:2] == ["value 99", "99"]
    assert texts[-2:] == ["81 others", f"{sum(range(81)):,}"]
    some = svg(plots.bars({"a": 3, "b": 2}, "Frequent values", total=10))
    assert [one.text for one in some.iter("text")][-2:] == ["all others", "5"]


def test_bars_that_are_compared_show_first_what_moved_most():
    drawn = svg(plots.compared_bars({"a": 50, "b": 50}, {"a": 500, "b": 300, "c": 200}, "Classes"))
    texts = [one.text for one in drawn.iter("text")]
    assert texts == ["b", "30 %", "c", "20 %", "a", "50 %"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_becomes_markup(text):
    for drawn in (
        plots.bars({text: 3, "b": 1}, text),
        plots.compared_bars({text: 3}, {text: 4}, text),
        plots.histogram(histogram_of([1, 2]), text),
    ):
        page = require_harmless(drawn)
        assert set(page.tags) <= {"svg", "title", "desc", "text", "rect", "path", "circle"}


def test_long_and_wide_names_stay_in_their_place():
    drawn = svg(plots.bars({"a" * 100: 1, "統" * 12: 1, "short": 1}, "Classes"))
    first, second, third = list(drawn.iter("text"))[::2]
    assert len(first.text) < 20
    assert first.get("textLength") == second.get("textLength") == "84"
    assert third.get("textLength") is None
