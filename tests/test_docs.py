"""Docs cannot rot: every Python block runs, every command is tried, the CLI page is current."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from my_datasets.cli.main import COMMANDS
from tests import zygote

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    page.relative_to(ROOT) for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / page).read_text("utf-8"))


def environment(directory: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HOME": str(directory),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TFDS_DATA_DIR": str(directory / "tensorflow_datasets"),
    }


def commands_of(page: Path) -> list[str]:
    return [
        line.removeprefix("$ ")
        for kind, code in blocks(page)
        if kind == "console"
        for line in code.splitlines()
        if line.startswith("$ ")
    ]


def code_of(page: Path) -> str:
    return "\n".join(code for kind, code in blocks(page) if kind == "python")


@pytest.mark.docs
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(kind == "python" for kind, _ in blocks(p))], ids=str
)
def test_python_blocks_run_in_order(page, tmp_path):
    source = code_of(page)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SyntaxWarning)
        compile(source, page, "exec")
    command = ["-c", source]
    done = zygote.of(Path(sys.executable)).run(command, tmp_path, environment(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.docs
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(kind == "console" for kind, _ in blocks(p))], ids=str
)
def test_console_blocks_run_in_order(page, tmp_path):
    commands = commands_of(page)
    assert commands
    done = subprocess.run(
        ["bash", "-euxc", "\n".join(commands)],
        check=False, capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_readmes_two_commands_are_the_makefiles(tmp_path):
    (kind, code), *_ = blocks(Path("README.md"))
    assert kind == "sh"
    commands = [line.partition("#")[0].strip() for line in code.splitlines() if line.strip()]
    assert commands == ["make demo", "make test"]
    for command in commands:
        dry = subprocess.run([*command.split(), "-n"], check=True, capture_output=True, cwd=ROOT)
        assert dry.stdout
    assert "make test" in (ROOT / ".ci/run").read_text()


def test_every_command_is_in_the_cli_page_and_the_page_is_current():
    page = (ROOT / "docs/cli.md").read_text()
    assert all(f"## `my-datasets {name} " in page for name in COMMANDS)
    subprocess.run([sys.executable, ROOT / "docs/generate_cli.py", "--check"], check=True)


def test_every_test_that_the_security_page_names_exists():
    named, path = [], ""
    for match in re.finditer(
        r"`((?:[\w/]+\.py)?)::(\w+)`", (ROOT / "docs/security.md").read_text()
    ):
        path = match[1] or path
        named.append((path, match[2]))
    assert len(named) > 20
    missing = [
        f"{path}::{name}"
        for path, name in named
        if f"def {name}(" not in (ROOT / "tests" / path).read_text()
    ]
    assert not missing


def test_relative_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text("utf-8")):
            assert (ROOT / page.parent / target).exists(), f"{page} links to {target}"
