"""Reports: whole in one file, with all there is to tell, and nothing that runs."""

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from my_datasets.catalog.pages import diff_page, statistics_page, verification_page
from my_datasets.cli.main import cli
from my_datasets.comparison.diff import Diff
from my_datasets.comparison.example_changes import SplitDiff
from my_datasets.core.issue import Issue, Severity
from my_datasets.core.version import Bump, ChangeKind, VersionChange, VersionNumber
from my_datasets.metadata.manifest import Manifest
from my_datasets.statistics.drift import drifted
from my_datasets.statistics.sketches import Distribution
from my_datasets.statistics.values import summary_of
from my_datasets.verification.verifier import Level, Report
from tests.building.engines.builds import build
from tests.catalog.markup import HOSTILE, require_harmless
from tests.statistics import rows


@pytest.fixture(scope="module")
def statistics(tmp_path_factory):
    version = build(rows.Statistics, tmp_path_factory.mktemp("reports"), workers=1)
    return Manifest.read(version).statistics


def test_statistics_of_each_kind(statistics):
    page = require_harmless(statistics_page("toy_statistics:1.0.0", statistics))
    for said in (
        "toy_statistics:1.0.0", "train: 300 examples", "6 not a number (2 %)", "75 missing (25 %)",
        "30 without a class (10 %)", "1 class without an example", "8 to 12 pixels",
        "105 empty (35 %)", "0 to 42.71", "41.5 on average", "png (300)", "8,000",
    ):  # fmt: skip
        assert said in page.text, said
    assert set(rows.row(0)) <= set(page.text.split())
    # Each feature is drawn.
    assert page.tags.count("svg") >= len(rows.row(0))


def test_splits_stand_in_their_usual_order(statistics):
    all_splits = dict.fromkeys(("test", "unseen", "train", "validation"), statistics["train"])
    text = require_harmless(statistics_page("x:1.0.0", all_splits)).text
    places = [text.rindex(name) for name in ("train", "validation", "test", "unseen")]
    assert places == sorted(places)


def test_no_statistics():
    assert "has no statistics" in require_harmless(statistics_page("x:1.0.0", {})).text


def report(*issues, **changes):
    values = {
        "name": "x:1.0.0", "path": "/data/x/1.0.0", "level": Level.DEEP, "issues": issues,
        "examples": 1797, "bytes": 4096, "digest": None, "not_checked": (), "seconds": 0.25,
    }  # fmt: skip
    return Report(**{**values, **changes})


def test_a_verification():
    issue = Issue("damaged", "x-train, record 4", "Wrong.", "pull it", "crc 1", "crc 2")
    warning = Issue("overlap", "split test", "Twice.", "see", severity=Severity.WARNING)
    bad = report(issue, warning, not_checked=("what only TFDS reads",))
    page = require_harmless(verification_page([bad, report(digest="ab" * 32)]))
    for said in (
        "1 error", "1 warning", "x-train, record 4", "Wrong.", "damaged", "crc 1", "crc 2",
        "pull it", "what only TFDS reads", "every byte and every example", "4.0 KiB", "ab" * 32,
        "No problems found", "1,797 examples", "/data/x/1.0.0",
    ):  # fmt: skip
        assert said in page.text, said


def numbers(low, high):
    distribution = Distribution()
    distribution.add(np.linspace(low, high, 500))
    return {"kind": "number", "values": 500, "missing": 0, **summary_of(distribution)}


def labels(**counts):
    return {"kind": "label", "values": sum(counts.values()), "missing": 0, "classes": counts}


def split(**features):
    return {"train": {"examples": 500, "features": features}}


def test_a_difference_with_the_statistics_that_moved():
    changes = (
        VersionChange(ChangeKind.EXAMPLES_ADDED, "split train", "2 examples", "1 others: train[1]"),
        VersionChange(ChangeKind.FEATURE_ADDED, "feature new", "not there", "int64"),
    )
    splits = (SplitDiff("train", 2, 3, added=1, moved={"test": 4}),)
    before = split(length=numbers(0, 1), kind=labels(a=250, b=250), still=numbers(0, 1))
    after = split(length=numbers(5, 6), kind=labels(a=450, b=50), still=numbers(0, 1))
    least = VersionNumber(2, 0, 0)
    found = Diff(
        "x:1.0.0", "x:1.0.1", changes, splits, tuple(drifted(before, after)), Bump.PATCH, least
    )
    page = require_harmless(diff_page(found, before, after))
    for said in (
        "x:1.0.0 → x:1.0.1", "major", "patch", "2.0.0", "too low", "train[1]", "4 from test",
        "slices such as train[:10%] give other examples", "Kolmogorov-Smirnov", "L-infinity",
        "median 0.4", "median 5.4", "1.000", "0.400",
    ):  # fmt: skip
        assert said in page.text, said
    assert page.tags.count("svg") == 2
    assert "still" not in page.text
    found = replace(found, moved=())
    assert "no statistics" in require_harmless(diff_page(found, before, None)).text
    assert "No significant changes" in require_harmless(diff_page(found, before, before)).text


def test_no_difference():
    found = Diff("x:1.0.0", "y:1.0.0", (), (), (), None, VersionNumber(1, 0, 0))
    text = require_harmless(diff_page(found, {}, {})).text
    assert "example for example" in text
    assert "or another dataset" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_from_data_becomes_markup(text):
    issue = Issue(text, text, text, text, text, text)
    require_harmless(verification_page([report(issue, name=text, path=text, not_checked=(text,))]))
    top = {"is_exact": True, "values": [{"value": text, "count": 9}, {"value": "b", "count": 5}]}
    words = {
        "kind": "text", "values": 14, "missing": 1, "top": top, "lengths": {},
        "distinct": {"number": 2, "is_exact": True},
    }  # fmt: skip
    before = {text: {"examples": 14, "features": {text: words, "l": labels(**{text: 99, "b": 1})}}}
    after = {text: {"examples": 14, "features": {text: words, "l": labels(**{text: 1, "b": 99})}}}
    page = require_harmless(statistics_page(text, before))
    assert page.tags.count("svg") == 2
    change = VersionChange(ChangeKind.FEATURE_ADDED, text, text, text)
    splits = (SplitDiff(text, 1, 2, moved={text: 3}),)
    both = tuple(drifted(before, after))
    found = Diff(text, text, (change,), splits, both, Bump.MINOR, VersionNumber(1, 1, 0))
    page = require_harmless(diff_page(found, before, after))
    assert page.tags.count("svg") == 1


def run(*arguments):
    return CliRunner().invoke(cli, [str(one) for one in arguments])


def test_the_commands_write_them(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_DATASETS_HOME", str(tmp_path))
    assert run("build", "digits", "--data-dir", tmp_path, "--quiet").exit_code == 0
    version = tmp_path / "digits" / "1.0.0"
    done = run("verify", version, "--fast", "--html", tmp_path / "verify.html", "--json")
    assert done.exit_code == 0, done.output
    assert "digits:1.0.0" in require_harmless((tmp_path / "verify.html").read_text()).text
    done = run("diff", version, version, "--html", tmp_path / "diff.html")
    assert done.exit_code == 0, done.output
    assert "Wrote " in done.stderr
    assert "byte for byte" in require_harmless((tmp_path / "diff.html").read_text()).text
    done = run("diff", version, version, "--html", tmp_path / "nowhere" / "diff.html")
    assert done.exit_code == 1
    assert "cannot be written: No such file or directory" in str(done.exception)
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]
