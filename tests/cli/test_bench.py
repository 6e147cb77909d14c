"""`my-datasets bench`."""

import json

import pytest
from click.testing import CliRunner

import my_datasets
from my_datasets.cli.main import cli


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    my_datasets.load("digits", data_dir=root)
    return root


def run(*arguments):
    return CliRunner().invoke(cli, ["bench", *map(str, arguments)], catch_exceptions=False)


def test_it_says_what_holds_a_pipeline_up(digits, tmp_path):
    chart, report = tmp_path / "digits.png", tmp_path / "digits.json"
    done = run(
        "digits", "--data-dir", digits, "--seconds", "0.1", "--framework", "numpy", "--workers", 1,
        "--plot", chart, "--output", report,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    for said in ("Bottleneck: ", "examples/s", "decode", "█", "With cache='memory'", "shuffle"):
        assert said in done.stdout
    assert chart.read_bytes().startswith(b"\x89PNG")
    written = json.loads(report.read_text())
    stages = [one["stage"] for one in written["ceilings"]]
    assert stages == [one for one in ("order", "read", "parse", "decode", "deliver")
                      if one in stages]  # fmt: skip
    assert {"read", "decode"} <= set(stages)
    assert abs(sum(one["share"] for one in written["ceilings"]) - 1) < 0.01


def test_json_and_tensorflow(digits):
    done = run("digits:1.*.*", "--data-dir", digits, "--seconds", "0.1", "--json", "--augment",
               "--columns", "image", "--batch-size", 32)  # fmt: skip
    found = json.loads(done.stdout)
    assert found["framework"] == "tensorflow"
    assert "map" in [one["stage"] for one in found["ceilings"]]
    done = run("digits", "--data-dir", digits, "--seconds", "0.1", "--json", "--image-size", "4x6")
    assert "images of 4 x 6" in " ".join(json.loads(done.stdout)["plan"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "No prepared data matches 'nothing'"),
        (["digits", "--image-size", "big"], "such as 224x224"),
        (["digits", "--split", "x"], "no split"),
        (["digits", "--columns", "x"], "no feature 'x'"),
        (
            ["digits", "--columns", "label", "--augment", "--seconds", "0.1"],
            "exactly one image feature",
        ),
        (["digits", "--augment", "--framework", "numpy"], "needs TensorFlow"),
    ],
)
def test_what_cannot_be_is_said(digits, arguments, said):
    done = CliRunner().invoke(cli, ["bench", *arguments, "--data-dir", str(digits)])
    assert done.exit_code in (1, 2)
    assert said in done.output + str(done.exception)
