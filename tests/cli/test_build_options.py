"""The options of `my-datasets build` that reach the engine."""

import json

import click
import pytest
from click.testing import CliRunner

from my_datasets.cli.main import cli
from my_datasets.cli.options import size


def test_what_is_no_size_is_an_error_of_the_command_line():
    assert size("4G") == 4 << 30
    with pytest.raises(click.BadParameter, match="is not a size; write 500M or 4G"):
        size("4 apples")
    result = CliRunner().invoke(cli, ["build", "digits", "--max-memory", "many"])
    assert result.exit_code == 2
    assert "--max-memory" in result.output
    assert "is not a size" in result.output


@pytest.mark.parametrize(
    "options",
    [
        ["--engine", "beam"],
        ["--beam-option", "runner=in-process", "--beam-option", "experiments=a"],
        ["--beam-pipeline-options", "runner=FnApiRunner"],
    ],
    ids=["engine", "option", "as tfds"],
)
def test_a_build_on_beam_is_the_same(tmp_path, monkeypatch, options):
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    ran = []
    original = FnApiRunner.run_pipeline
    monkeypatch.setattr(
        FnApiRunner, "run_pipeline", lambda *given: ran.append(given[1]) or original(*given)
    )
    digests = []
    for place, more in (("local", []), ("beam", options)):
        command = ["build", "digits", "--data-dir", str(tmp_path / place), *more, "--json"]
        result = CliRunner().invoke(cli, command)
        assert result.exit_code == 0, result.output
        manifest = tmp_path / place / "digits/1.0.0/my_datasets_manifest.json"
        digests.append(json.loads(manifest.read_text())["content"])
    assert digests[0] == digests[1]
    assert len(ran) >= 2  # Beam has sorted, and written


def test_options_of_beam_that_lose_examples_are_refused(tmp_path):
    result = CliRunner().invoke(
        cli,
        ["build", "digits", "--data-dir", str(tmp_path), "--engine", "beam", "--beam-option",
         "direct_running_mode=multi_threading"],
    )  # fmt: skip
    assert "loses examples with it" in str(result.exception)


def test_options_reach_the_engine(tmp_path):
    result = CliRunner().invoke(
        cli,
        ["build", "digits", "--data-dir", str(tmp_path), "--splits", "test", "--workers", "2",
         "--max-memory", "100M", "--restart", "--on-error", "quarantine", "--unit-timeout", "60",
         "--readers", "2", "--json"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)[0]["splits"] == {"test": 359}
    manifest = json.loads((tmp_path / "digits/1.0.0/my_datasets_manifest.json").read_text())
    assert manifest["options"] == {"on_error": "quarantine", "splits": ["test"]}
    whole = CliRunner().invoke(cli, ["build", "digits", "--data-dir", str(tmp_path)])
    assert "it was built with" in str(whole.exception)
