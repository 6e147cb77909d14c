"""`my-datasets snapshot`, as it is installed, and what it says of mistakes."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from my_datasets.cli.main import cli
from tests.conftest import ROOT
from tests.kafka import kafka
from tests.kafka.conftest import broker, topic  # noqa: F401 - fixtures
from tests.kafka.examples import FEATURES, numbered

COMMAND = [sys.executable, "-m", "my_datasets", "snapshot"]


@pytest.mark.kafka
def test_a_topic_is_frozen_and_the_command_that_is_printed_makes_it_again(topic, tmp_path):  # noqa: F811
    url = topic(2)
    kafka.produce(url, {p: numbered(range(p * 50, p * 50 + 50)) for p in range(2)})
    FEATURES.save_config(str(tmp_path))
    (tmp_path / "client").write_text("# ours\nclient.id = frozen\n")
    options = [
        "--features", str(tmp_path), "--config", str(tmp_path / "client"), "--workers", "1",
    ]  # fmt: skip
    done = run(url, "--as", "clicks:1.0.0", *options, "--data-dir", tmp_path / "a", "--json")
    result = json.loads(done.stdout)
    assert result["examples"] == 100
    assert result["offsets"] == {"0": [0, 50], "1": [0, 50]}
    kafka.produce(url, {0: numbered([7])})
    again = result["reproduce"].split()[2:]
    text = run(*again, *options, "--data-dir", tmp_path / "b").stdout
    assert "partition 1: offsets 0 to before 50" in text
    shards = [
        sorted(path.read_bytes() for path in (tmp_path / which).rglob("*.tfrecord-?????-of-?????"))
        for which in "ab"
    ]
    assert shards[0]
    assert shards[0] == shards[1]


def run(*args):
    done = subprocess.run(
        [*COMMAND, *map(str, args)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--from-offsets", "never"], 2, "is not earliest, latest"),
        (["--until", "2026-01-01T00:00:00"], 2, "has no time zone"),
        (["--features", "no_such_module:FEATURES"], 1, "There are no features"),
        (["--features", "no_such_dataset"], 1, "no_such_dataset"),
        (["--schema", "/no/such/file"], 1, "/no/such/file cannot be read"),
        (["--config", __file__], 1, "cannot be read: ValueError"),
    ],
)
def test_mistakes_are_reported_before_a_broker_is_asked(args, code, message, tmp_path):
    FEATURES.save_config(str(tmp_path))
    given = ["--as", "clicks:1.0.0", "--features", str(tmp_path), *args]
    result = CliRunner().invoke(cli, ["snapshot", "kafka://127.0.0.1:1/t", *given])
    said = result.output + str(result.exception)
    assert message in said
    assert result.exit_code == code


def test_a_password_on_the_command_line_is_refused_and_not_repeated(tmp_path):
    FEATURES.save_config(str(tmp_path))
    url = "kafka://user:hunter2@127.0.0.1:1/t"
    result = CliRunner().invoke(
        cli, ["snapshot", url, "--as", "clicks:1.0.0", "--features", str(tmp_path)]
    )
    assert "contains a user or a password" in str(result.exception)
    assert "hunter2" not in result.output + str(result.exception)
