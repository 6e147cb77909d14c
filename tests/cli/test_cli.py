"""The commands, run in this process; `tests/test_ways_in.py` runs them installed."""

import json
import logging

import pytest
import tensorflow_datasets as tfds
from click.testing import CliRunner

from my_datasets.cli import main, output
from my_datasets.cli.main import COMMANDS, cli


@pytest.fixture
def run():
    """Runs a command line; returns its result, with stdout and stderr apart."""
    handlers = list(logging.getLogger().handlers)

    def invoke(*args: str):
        return CliRunner().invoke(cli, list(args), catch_exceptions=True)

    yield invoke
    logging.getLogger().handlers[:] = handlers
    tfds.enable_progress_bar()


def test_info_shows_the_folders_of_the_user(run, monkeypatch):
    monkeypatch.setenv("MY_DATASETS_HOME", "/no/such/home")
    folders = {kind: f"/no/such/home/{kind}" for kind in ("state", "cache", "settings")}
    assert json.loads(run("info", "--paths", "--json").stdout) == folders
    lines = run("info", "--paths").stdout.splitlines()
    assert [tuple(line.split()) for line in lines] == list(folders.items())


@pytest.mark.parametrize(("args", "said"), [
    ((), "Missing argument 'NAME[/CONFIG][:VERSION]'"),
    (("digits", "--paths"), "--paths takes no dataset"),
    (("--paths", "--fingerprint"), "--paths takes no dataset"),
])  # fmt: skip
def test_info_takes_a_dataset_or_shows_folders(failing, args, said):
    code, output = failing("info", *args)
    assert code == 2
    assert said in output


@pytest.fixture
def failing(monkeypatch, capsys):
    """Runs a command line that fails, as the console script does; returns (exit code, stderr)."""

    def invoke(*args: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["my-datasets", *args])
        with pytest.raises(SystemExit) as caught:
            main.main()
        return caught.value.code, capsys.readouterr().err

    return invoke


def test_build_list_and_info_tell_one_story(run, tmp_path):
    built = json.loads(run("build", "digits", "--data-dir", str(tmp_path), "--json").stdout)
    assert built[0]["splits"] == {"train": 1438, "test": 359}
    assert built[0]["built"] is True

    rows = json.loads(run("list", "--data-dir", str(tmp_path), "--json").stdout)["datasets"]
    assert [row["name"] for row in rows if row["prepared"]] == ["digits"]
    (row,) = [row for row in rows if row["prepared"]]
    assert row["version"] == "1.0.0"
    assert row["prepared"] == ["1.0.0"]
    assert row["summary"].startswith("Handwritten digits")

    info = json.loads(run("info", "digits:1.*.*", "--data-dir", str(tmp_path), "--json").stdout)
    assert info["prepared"] is True
    assert info["splits"]["test"]["examples"] == 359
    assert info["licence"] == "CC BY 4.0"
    assert info["path"] == str(tmp_path / "digits/1.0.0")

    again = run("build", "digits", "--data-dir", str(tmp_path))
    assert "digits/1.0.0: already prepared" in again.stdout

    for args in (("list",), ("info", "digits")):
        text = run(*args, "--data-dir", str(tmp_path)).stdout
        assert "1.0.0" in text
        assert "digits" in text


def test_tfds_users_flags_work_with_underscores(run, tmp_path):
    result = run(
        "build", "digits", "--data_dir", str(tmp_path), "--max_examples_per_split", "5",
        "--num_shards", "2", "--quiet",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "train: 5 examples" in result.stdout
    assert "a sample of at most 5 examples" in result.stdout
    shards = sorted(p.name for p in (tmp_path / "digits/1.0.0").glob("*train*-of-?????"))
    assert shards == [f"digits-train.tfrecord-0000{i}-of-00002" for i in range(2)]

    assert run("build", "digits", "--config", "small", "-q").exit_code == 1
    whole = run(
        "build", "digits", "--data-dir", str(tmp_path), "--overwrite", "--json",
        "--file-format", "array_record",
    )  # fmt: skip
    assert list((tmp_path / "digits/1.0.0").glob("*.array_record*"))
    assert json.loads(whole.stdout)[0]["splits"]["train"] == 1438


def test_progress_goes_to_stderr(run, tmp_path):
    result = run("build", "digits", "--data-dir", str(tmp_path))
    assert "generating, 0/2 units" in result.stderr
    assert "writing" in result.stderr
    assert "generating" not in result.stdout


def test_a_user_module_brings_its_builders(run, tmp_path):
    result = run("build", "toy_numbers", "--imports", "tests.builders.toy", "--data-dir",
                 str(tmp_path))  # fmt: skip
    assert "toy_numbers/1.1.0: built" in result.stdout


def test_list_shows_prepared_data_of_others(run, tmp_path):
    run("build", "toy_numbers", "--imports", "tests.builders.toy", "--data-dir", str(tmp_path))
    rows = json.loads(run("list", "--data-dir", str(tmp_path), "--json").stdout)["datasets"]
    assert [(row["name"], row["version"], row["prepared"]) for row in rows] == [
        ("cats_and_dogs", "1.0.0", []),
        ("collider_events", "1.0.0", []),
        ("digits", "1.0.0", []),
        ("movie_sentiment", "1.0.0", []),
        ("penguins_study", "1.1.0", []),
        ("spoken_numbers", "1.0.0", []),
        ("toy_numbers", None, ["1.1.0"]),
    ]


def test_info_of_what_is_not_prepared_tells_the_command(run, tmp_path):
    result = run("info", "digits", "--data-dir", str(tmp_path))
    assert "(not prepared)" in result.stdout
    assert "my-datasets build digits:1.0.0" in result.stdout


def test_failing_if_it_exists(run, tmp_path):
    run("build", "digits", "--data-dir", str(tmp_path))
    result = run("build", "digits", "--data-dir", str(tmp_path), "--fail-if-exists")
    assert result.exit_code == 1
    assert "digits/1.0.0 is already prepared" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["info", "digitz"], "Did you mean 'digits'?"),
        (["info", "digits:1.x"], "did you mean 'digits:1.*.*'?"),
        (["build", ""], "it is empty"),
        (["build", "digits/"], "the config ''"),
        (["build", "digits", "--imports", "no_such_pakage"], "There is no module 'no_such_pakage'"),
        (["demo", "--output", "/dev/null/x"], "/dev/null is not a directory"),
        (["build", "digits:3.0.0"], "has no version 3.0.0"),
        (["build", "digits/small"], "has no config 'small'"),
        (["list", "--data-dir", "/no/such/dir"], "/no/such/dir does not exist"),
        (["info", "digits", "--data-dir", "/no/such/dir"], "/no/such/dir does not exist"),
        (["build", "digits", "--data-dir", "/dev/null"], "/dev/null is not a directory"),
    ],
)
def test_mistakes_end_with_one_message_and_exit_code_1(failing, args, message):
    code, stderr = failing(*args)
    assert code == 1
    assert message in stderr
    assert "Traceback" not in stderr
    assert len(stderr.splitlines()) <= 10


def test_a_module_that_fails_to_import_shows_its_own_traceback(failing, tmp_path, monkeypatch):
    (tmp_path / "broken_builders.py").write_text("def half():\n    1 / 0\nhalf()\n")
    monkeypatch.syspath_prepend(tmp_path)
    code, stderr = failing("build", "x", "--imports", "broken_builders")
    assert code == 1
    assert 'broken_builders.py", line 2, in half' in stderr
    assert "ZeroDivisionError" in stderr.splitlines()[-3]


def test_wrong_usage_is_exit_code_2(failing):
    assert failing("build")[0] == 2
    assert failing("no-such-command")[0] == 2


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_help_with_an_example(run, name):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert "Example:" in result.stdout


def test_the_default_data_dir_is_tfds_own(monkeypatch):
    from tensorflow_datasets.core import constants

    for value in ("/somewhere", None):
        if value:
            monkeypatch.setenv("TFDS_DATA_DIR", value)
        else:
            monkeypatch.delenv("TFDS_DATA_DIR")
        assert output.default_data_dir() == constants.get_default_data_dir()


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_are_readable(size, text):
    assert output.human_size(size) == text
