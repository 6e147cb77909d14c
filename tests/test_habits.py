"""The house rules that a machine can check: layers, style, types, names, the open door to TFDS."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from my_datasets import dependencies

BIN = Path(sys.executable).parent


@pytest.mark.lint
@pytest.mark.parametrize(
    "command",
    [["lint-imports"], ["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]],
    ids=" ".join,
)
def test_the_tools_are_content(command, root):
    done = subprocess.run(
        [BIN / command[0], *command[1:]], check=False, capture_output=True, text=True, cwd=root
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.lint
def test_a_wrong_import_would_be_caught(root, tmp_path):
    """The layers contract fails on a copy in which the lowest layer reaches up."""
    import shutil

    shutil.copytree(root / "my_datasets", tmp_path / "my_datasets")
    shutil.copy(root / "pyproject.toml", tmp_path)
    with (tmp_path / "my_datasets/errors.py").open("a") as file:
        file.write("\nimport my_datasets.cli.output\nimport tensorflow\n")
    done = subprocess.run(
        [BIN / "lint-imports", "--no-cache"],
        check=False, capture_output=True, text=True, cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "Layers: imports point downward only BROKEN" in done.stdout
    assert "The base knows no TensorFlow, TFDS or Beam BROKEN" in done.stdout


def test_every_extra_that_an_error_names_exists(root):
    assert set(dependencies._EXTRA_OF.values()) <= set(dependencies.EXTRAS)
    assert dependencies.install_command("google.cloud.storage") == (
        "pip install 'google-cloud-storage>=3.1'"
    )
    assert dependencies.install_command("plots") == dependencies.install_command("matplotlib")
    assert dependencies.install_command("polars.io") == "pip install 'polars'"


def test_advice_names_what_every_index_has(root):
    """Never `my_datasets[...]`, which a checkout and a wheel cannot install by that name."""
    said = {dependencies.install_command(extra) for extra in dependencies.EXTRAS}
    said |= {"pip install .", "pip install '.[test]'", "pip install '.[s3,signing]'"}  # README
    said |= {"pip install -e '.[test]'", "pip install 'apache-beam[gcp]'"}
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    found = set()
    for file in [*pages, *(root / "my_datasets").rglob("*.py")]:
        if file.name == "CHANGELOG.md":  # what older versions said
            continue
        text = file.read_text("utf-8")
        assert "my_datasets[" not in text.replace("`my_datasets[s3]`", ""), file
        found |= {
            re.sub(r"\s+", " ", command).strip()
            for command in re.findall(r"pip install (?:-e )?(?:\.|'[^`\n#]*')(?=[`\s:\"])", text)
        }
    assert found - said == set()
    assert len(found) > 8


def imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def test_every_import_is_declared(root):
    """Each third-party module that the package imports is one of setup.py's requirements."""
    modules = {
        name.partition(".")[0]
        for source in (root / "my_datasets").rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        for name in imported(node)
    }
    # Type checkers bring _typeshed; it is never imported.
    third_party = modules - set(sys.stdlib_module_names) - {"my_datasets", "_typeshed"}
    distributions = {
        "PIL": "pillow", "cv2": "opencv-python-headless",
        "google": "protobuf", "grpc": "grpcio", "rich_click": "rich-click", "yaml": "pyyaml",
        "markdown_it": "markdown-it-py",
    }  # fmt: skip
    base = (root / "setup.py").read_text().split("extras_require")[0]
    base += "".join(f'"{one}"' for one in (dependencies.BEAM, *dependencies.IMAGES))
    for module in third_party:
        distribution = distributions.get(module, module.replace("_", "-"))
        # Or in the extra that the error names to whoever lacks it.
        extra = dependencies.extra_of(module)
        where = base + "".join(f'"{one}"' for one in dependencies.EXTRAS.get(extra, ()))
        assert re.search(rf'"{distribution}(\[\w+\])?[><]', where), module


def test_no_asserts(root):
    for source in (root / "my_datasets").rglob("*.py"):
        assert not re.search(r"^\s+assert ", source.read_text(), re.MULTILINE), source


def test_the_constraints_pin_every_requirement(root):
    pinned = set(re.findall(r"^([\w.-]+)==", (root / "constraints.txt").read_text(), re.MULTILINE))
    files = (root / "setup.py", root / "my_datasets/dependencies.py")
    text = "".join(file.read_text() for file in files)
    names = re.findall(r'"([A-Za-z][\w-]*)(?:\[\w+\])?[><]', text)
    assert len(names) > 60
    assert {name.lower().replace("_", "-") for name in names} <= pinned


def test_ruff_and_mypy_are_strict(root):
    tools = tomllib.loads((root / "pyproject.toml").read_text())["tool"]
    assert tools["mypy"]["strict"] is True
    assert {"D", "E", "F", "T20"} <= set(tools["ruff"]["lint"]["select"])
