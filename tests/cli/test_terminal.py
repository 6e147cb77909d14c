"""What reaches the terminal of texts that others wrote: no character that it obeys, or hides."""

import ast
import contextlib
import dataclasses
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import traceback
import unicodedata
from pathlib import Path

import pytest
import yaml

import my_datasets
from my_datasets.metadata import recorded_files
from my_datasets.metadata.dataset_info import essentials
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.version_metadata import VersionMetadata
from tests.publishing.made import NAME, make

# One of each kind; a title; a link and colours by markup; and a line that forges another one.
EVIL = (
    "\x1b[2J\x1b]0;owned\x07\x1b[8m\x9b31m\x90q\u202eright\u2066left\u200b\u200f\ufeff\u2028\x7f\x00"
    "[link=https://evil.example]\r[red]red[/red][/] \U000e0041"
)
# Colours, and what a progress bar does with its own lines.
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[(?:\?25[hl]|[12]K|[0-9]*[ABC])|\r")
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A data directory with a version in which every text is hostile, a good one, and a store."""
    top = tmp_path_factory.mktemp("hostile")
    good = make(top / "good", shards=1, rows=4, size=64)
    version = top / "data" / NAME / "1.0.0"
    shutil.copytree(good, version)
    info = json.loads((version / "dataset_info.json").read_text())
    info |= {
        "description": EVIL, "citation": EVIL, "configDescription": EVIL, "moduleName": "evil",
        "location": {"urls": [f"https://example.org/{EVIL}"]}, "releaseNotes": {"1.0.0": EVIL},
        "redistributionInfo": {"license": EVIL},
    }  # fmt: skip
    (version / "dataset_info.json").write_text(json.dumps(info))
    features = json.loads((version / "features.json").read_text())
    inner = features["featuresDict"]["features"]
    for one in inner.values():
        one |= {"description": EVIL, "valueRange": EVIL}
    (version / "features.json").write_text(json.dumps(features))
    made = Manifest.read(version)
    statistics = {
        split: {**found, "features": {f"{name}{EVIL}": one for name, one in
                                      found["features"].items()}}
        for split, found in made.statistics.items()
    }  # fmt: skip
    dataclasses.replace(
        made,
        content=dataclasses.replace(made.content, schema=VersionMetadata(version).schema_digest),
        metadata_copy=recorded_files.of_version(version), metadata=essentials(version),
        statistics=statistics,
        provenance={**made.provenance, "licence": EVIL, "reproduce": EVIL,
                    "release_notes": {"1.0.0": EVIL}, "software": {"x": EVIL}},
    ).write(version)  # fmt: skip
    store = top / "store"
    my_datasets.publish(str(version), store, note=EVIL, version_gate=False)
    command("yank", NAME + ":1.0.0", "--to", store, "--message", EVIL.replace("\0", ""))
    command("yank", NAME + ":1.0.0", "--to", store, "--undo")
    blocked = top / "blocked" / NAME / "1.0.0"
    shutil.copytree(version, blocked)
    (blocked / "dataset_info.json").write_text(json.dumps({**info, "isBlocked": EVIL}))
    odd = top / "odd" / NAME / "1.0.0"
    shutil.copytree(version, odd)
    (odd / f"file{EVIL[:20]}".replace("\0", "")).write_text("")
    called = json.dumps(EVIL.replace("\0", ""))
    (odd / "features.json").write_text(json.dumps(features).replace('"number"', called))
    return top


def command(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "my_datasets", *map(str, words)], capture_output=True, check=False,
        **options,
    )  # fmt: skip


def on_a_terminal(*words, cwd, env):
    """Returns all that a command sends to the terminal that it runs in."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "my_datasets", *map(str, words)], stdin=follower, stdout=follower,
        stderr=follower, cwd=cwd, env=env, close_fds=True,
    )  # fmt: skip
    os.close(follower)
    found = b""
    with contextlib.suppress(OSError):
        while data := os.read(leader, 1 << 16):
            found += data
    process.wait()
    os.close(leader)
    return found.decode("utf-8")


COMMANDS = {
    "ls": "ls --from {top}/store",
    "history": "history {name} --from {top}/store",
    "info --from": "info {name} --from {top}/store",
    "info": "info {name}:1.0.0 --data-dir {top}/data",
    "diff": "diff {top}/good/{name}/1.0.0 {top}/odd/{name}/1.0.0",
    "verify": "verify {top}/data/{name}/1.0.0",
    "verify an odd one": "verify {top}/odd/{name}/1.0.0",
    "stats": "stats {top}/data/{name}/1.0.0",
    "list": "list --data-dir {top}/data",
    "list of a blocked one": "list --data-dir {top}/blocked",
    "info of a blocked one": "info {name}:1.0.0 --data-dir {top}/blocked",
    "pull": "pull {name} --from {top}/store --data-dir {new}",
    "gc": "gc --in {top}/store",
    "lock": "lock {name}:1.0.0 --data-dir {top}/data --file {new}/datasets.lock",
    "export": "export {top}/data/{name}/1.0.0 --to parquet --output {new}/parquet",
    "publish an odd one": "publish {top}/odd/{name}/1.0.0 --to {new}/store",
    "publish a blocked one": "publish {top}/blocked/{name}/1.0.0 --to {new}/store",
    "adopt": "adopt {top}/odd/{name}/1.0.0",
}


def hidden(text):
    return sorted({one for one in text if unicodedata.category(one) in HIDDEN} - {"\n"})


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
def test_nothing_hostile_reaches_it(name, is_terminal, hostile, tmp_path):
    words = COMMANDS[name].format(top=hostile, new=tmp_path, name=NAME).split()
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONUTF8": "1"}
    if is_terminal:
        env |= {"TERM": "xterm-256color", "COLUMNS": "200"}
        shown = OURS.sub("", on_a_terminal(*words, cwd=tmp_path, env=env))
    else:
        done = command(*words, cwd=tmp_path, env=env)
        shown = (done.stdout + done.stderr).decode()
    assert shown.strip()
    assert "Traceback" not in shown
    assert not hidden(shown), repr(shown)
    if name in ("info", "info --from", "history", "diff", "stats"):
        folded = re.sub(r"\s", "", shown)
        assert r"\x1b" in folded
        assert "[red]" in folded  # as it is written: not a colour


@pytest.mark.parametrize(
    "name", ["info --from", "info", "history", "ls", "verify", "diff", "stats"]
)
def test_json_is_json(name, hostile, tmp_path):
    words = COMMANDS[name].format(top=hostile, new=tmp_path, name=NAME).split()
    done = command(*words, "--json", cwd=tmp_path)
    shown = done.stdout.decode()
    assert not hidden(shown)
    json.loads(shown)


def test_the_exported_card_is_harmless(hostile, tmp_path):
    words = COMMANDS["export"].format(top=hostile, new=tmp_path, name=NAME).split()
    assert command(*words).returncode == 0
    for file in tmp_path.rglob("*"):
        if file.suffix in (".md", ".json", ".jsonld"):
            assert not hidden(file.read_text("utf-8")), file
    card = (tmp_path / "parquet" / "README.md").read_text("utf-8")
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["license_name"].startswith(r"\x1b[2J")
    assert card.split("---\n")[0] == ""


def test_logs_warnings_and_errors_are_printable():
    script = (
        "import logging, sys, warnings\n"
        "from my_datasets.cli.output import print_only_printable\n"
        "print_only_printable()\nlogging.warning('log %s', sys.argv[1])\n"
        "warnings.warn('warning ' + sys.argv[1])\nraise ValueError('error ' + sys.argv[1])\n"
    )
    evil = EVIL.replace("\0", "")
    done = subprocess.run([sys.executable, "-c", script, evil], capture_output=True, check=False)
    shown = done.stderr.decode()
    assert not hidden(shown)
    for what in ("log", "warning", "ValueError: error"):
        assert rf"{what} \x1b[2J" in shown


IN_A_PROGRAM = {
    "source": lambda top, _: my_datasets.source(NAME, split="train", data_dir=top / "odd")[0],
    "blocked": lambda top, _: my_datasets.source(NAME, split="train", data_dir=top / "blocked"),
    "publish": lambda top, new: my_datasets.publish(top / "blocked" / NAME / "1.0.0", new),
    "publish an odd one": lambda top, new: my_datasets.publish(top / "odd" / NAME / "1.0.0", new),
}


@pytest.mark.parametrize("name", IN_A_PROGRAM)
def test_what_a_program_of_a_user_shows_is_printable(name, hostile, tmp_path, caplog):
    """Where nothing of the command line's is at work: tracebacks, and what is logged."""
    with pytest.raises(my_datasets.MyDatasetsError) as raised:
        IN_A_PROGRAM[name](hostile, tmp_path)
    shown = "".join(traceback.format_exception(raised.value)) + caplog.text
    assert not hidden(shown)
    assert r"\x1b[2J" in shown


def test_one_module_prints(root):
    for source in sorted((root / "my_datasets" / "cli").glob("*.py")):
        if source.name == "output.py":
            continue
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert name not in {"print", "click.echo", "click.secho", "Console", "rich.print",
                                "sys.stdout.write", "sys.stderr.write", "Text.from_markup"}, (
                f"{source}:{node.lineno}: print by cli/output.py"
            )  # fmt: skip


def test_the_package_prints_nowhere_else(root):
    package = root / "my_datasets"
    for source in sorted(package.rglob("*.py")):
        if source.is_relative_to(package / "cli") or "testing" in Path(source).parts:
            continue
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            is_print = isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
            assert not is_print, f"{source}:{node.lineno}"
