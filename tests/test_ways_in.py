"""All the ways to the data, each in a process of its own, from outside the checkout, installed.

Each is tried against a wheel in a new environment, an editable install, and a plain checkout.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from my_datasets import dependencies
from tests import installs, programs, test_docs


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """A directory that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "popen" in base.name else base) / "installs"
    directory.mkdir(exist_ok=True)
    return directory


@pytest.fixture
def install(request, shared) -> installs.Install:
    return installs.make(request.param, shared)


def of_kinds(*kinds: str) -> pytest.MarkDecorator:
    """A test for each of these kinds."""
    return pytest.mark.parametrize("install", kinds, indirect=True)


every_kind = of_kinds("wheel", "editable", "checkout")
wheel_only = of_kinds("wheel")
# Making the environments takes minutes; whoever does not make them waits for them.
pytestmark = [pytest.mark.installs, pytest.mark.timeout(1800)]

READ = """
import sys, tensorflow_datasets as tfds
assert "my_datasets" not in sys.modules
builder = tfds.builder_from_directory(sys.argv[1])
splits = builder.as_dataset(as_supervised=True)
print({name: len(dataset) for name, dataset in splits.items()})
image, label = next(splits["train"].as_numpy_iterator())
print(image.shape, image.dtype, int(image.max()) <= 16, 0 <= label <= 9)
"""
READ_OUTPUT = "{'train': 1438, 'test': 359}\n(8, 8, 1) uint8 True True\n"


def assert_readable_by_strangers(data_dir: Path, shared: Path) -> None:
    version = data_dir / "digits/1.0.0"
    stranger = installs.make("stranger", shared)
    stdout = stranger.run(
        stranger.python, "-c", READ, version, cwd=data_dir.parent, data_dir=Path("/nonexistent")
    )
    assert stdout.endswith(READ_OUTPUT)


def assert_prepared(data_dir: Path) -> None:
    info = json.loads((data_dir / "digits/1.0.0/dataset_info.json").read_text())
    assert {s["name"]: sum(map(int, s["shardLengths"])) for s in info["splits"]} == {
        "train": 1438,
        "test": 359,
    }


@every_kind
def test_tfds_build_by_name(install, tmp_path):
    data_dir = tmp_path / "data"
    install.run(
        *install.tfds, "build", "digits", "--imports", "my_datasets", cwd=tmp_path,
        data_dir=data_dir,
    )  # fmt: skip
    assert_prepared(data_dir)


@every_kind
def test_tfds_build_by_path(install, tmp_path):
    data_dir = tmp_path / "data"
    folder = install.package / "datasets/digits"
    install.run(*install.tfds, "build", folder, cwd=tmp_path, data_dir=data_dir)
    assert_prepared(data_dir)


@every_kind
def test_tfds_build_in_the_datasets_folder(install, tmp_path):
    data_dir = tmp_path / "data"
    folder = install.package / "datasets/digits"
    install.run(*install.tfds, "build", cwd=folder, data_dir=data_dir)
    assert_prepared(data_dir)


TFDS_LOAD = """
import my_datasets, tensorflow_datasets as tfds
whole, info = tfds.load("digits:1.*.*", with_info=True)
print(sorted(whole), info.full_name, info.splits["test"].num_examples)
part = tfds.load("digits:1.*.*", split="train[:80%]", as_supervised=True)
image, label = next(part.as_numpy_iterator())
print(len(part), image.shape)
print(tfds.builder("digits").info.full_name)
try:
    tfds.load("digits:9.9.9")
except my_datasets.errors.VersionNotFoundError as error:
    print(error)
"""


@every_kind
def test_tfds_load(install, tmp_path, shared):
    data_dir = tmp_path / "data"
    lines = install.run(
        install.python, "-c", TFDS_LOAD, cwd=tmp_path, data_dir=data_dir
    ).splitlines()
    assert lines[0] == "['test', 'train'] digits/1.0.0 359"
    assert lines[1] == "1150 (8, 8, 1)"
    assert lines[2] == "digits/1.0.0"
    assert "has no version 9.9.9" in lines[3]
    assert "Versions in code: 1.0.0" in lines[4]
    assert f"Versions prepared in {data_dir}: 1.0.0" in lines[5]
    assert_readable_by_strangers(data_dir, shared)


OUR_LOAD = """
import my_datasets
test = my_datasets.load("digits:1.*.*", split="test", as_supervised=True)
print(len(test))
for reference in ("digitz", "digits:9.9.9"):
    try:
        my_datasets.load(reference)
    except my_datasets.MyDatasetsError as error:
        print(type(error).__name__, len(str(error).splitlines()) <= 10)
"""


@every_kind
def test_our_load(install, tmp_path):
    data_dir = tmp_path / "data"
    stdout = install.run(install.python, "-c", OUR_LOAD, cwd=tmp_path, data_dir=data_dir)
    assert stdout == "359\nDatasetNotFoundError True\nVersionNotFoundError True\n"
    assert_prepared(data_dir)


@every_kind
def test_the_test_cases_resources_are_found(install, tmp_path):
    script = (
        "from my_datasets import resources\n"
        "print(resources.checksums_path('digits').is_file())\n"
        "print((resources.dummy_data_dir('digits') / 'digits.csv.gz').is_file())\n"
    )
    stdout = install.run(install.python, "-c", script, cwd=tmp_path, data_dir=tmp_path)
    assert stdout == "True\nTrue\n"


@wheel_only
def test_every_command_of_the_wheel_works(install, tmp_path):
    data_dir = tmp_path / "data"

    def run(*arguments: str) -> str:
        command = [*install.my_datasets, *arguments]
        return install.run(*command, cwd=tmp_path, data_dir=data_dir, new=True)

    assert run("--version") == "my-datasets, version 0.1.0\n"
    assert json.loads(run("list", "--json"))["datasets"][0]["prepared"] == []
    assert json.loads(run("build", "digits", "--json"))[0]["built"] is True
    assert json.loads(run("info", "digits", "--json"))["prepared"] is True
    demo = json.loads(run("demo", "--output", "pictures", "--json"))
    assert demo["splits"] == {"train": 1438, "test": 359}
    assert demo["path"] == str(data_dir / "digits/1.0.0")
    assert demo["test_accuracy"] >= 0.95
    assert Path(demo["contact_sheet"]).read_bytes().startswith(b"\x89PNG")


@wheel_only
def test_the_tfds_command_of_the_wheel_works(install, tmp_path):
    script = install.python.parent / "tfds"
    assert "build" in install.run(script, "--help", cwd=tmp_path, data_dir=tmp_path, new=True)
    install.run(script, "new", "my_own", cwd=tmp_path, data_dir=tmp_path, new=True)
    assert (tmp_path / "my_own/my_own_dataset_builder.py").is_file()


@wheel_only
def test_a_missing_extra_is_named(install, tmp_path):
    done = install.attempt(
        install.python, "-c", "import my_datasets; my_datasets.testing", cwd=tmp_path,
        data_dir=tmp_path, new=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip install 'dill>=0.3.8' 'pytest>=8'" in done.stderr


def take_the_tour(python: Path, directory: Path) -> None:
    """Runs README's commands, then its code, with no packages but those beside `python`."""
    variables = {
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "TFDS_DATA_DIR": str(directory / "tensorflow_datasets"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    readme = Path("README.md")
    (directory / "tour.py").write_text(test_docs.code_of(readme))
    done = subprocess.run(
        ["bash", "-euxc", "\n".join([*test_docs.commands_of(readme), "python tour.py"])],
        check=False, capture_output=True, text=True, cwd=directory, env=variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@wheel_only
def test_the_readmes_tour_runs_after_its_install(install, tmp_path):
    take_the_tour(install.python, tmp_path)


def supported_pythons() -> list[str]:
    setup = (installs.ROOT / "setup.py").read_text()
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', setup)


@pytest.mark.slow
@pytest.mark.parametrize("version", supported_pythons())
def test_the_readmes_tour_runs_after_its_own_command(version, tmp_path):
    """By pip, from a checkout, on each supported Python, with the versions that we test."""
    found = [sys.executable] if sys.version.startswith(f"{version}.") else []
    found += (Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python")
    found += Path("/usr/bin").glob(f"python{version}")
    if not found:
        programs.leave_out(f"CPython {version}")
    kind, code = next(
        block for block in test_docs.blocks(Path("README.md")) if "pip install" in block[1]
    )
    command = code.splitlines()[0].partition("#")[0].strip()
    assert (kind, command) == ("sh", "pip install .")
    installs.copy_checkout(tmp_path / "checkout")
    environment = tmp_path / "environment"
    subprocess.run([found[0], "-m", "venv", environment], check=True)
    subprocess.run(
        ["bash", "-euc", command],
        check=True, cwd=tmp_path / "checkout",
        env={
            "HOME": str(Path.home()), "PATH": f"{environment}/bin:/usr/bin:/bin",
            "PIP_CONSTRAINT": str(installs.ROOT / "constraints.txt"),
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        },
    )  # fmt: skip
    take_the_tour(environment / "bin/python", tmp_path)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_versions_that_we_test_have_wheels_for_each_python(version, tmp_path):
    assert version in supported_pythons()
    needed = [dependencies.BEAM, *dependencies.IMAGES, "tensorflow", "tensorflow-datasets"]
    needed += [one for extra in dependencies.EXTRAS.values() for one in extra]
    names = {re.split(r"[\[<>]", one)[0] for one in needed}
    subprocess.run(
        [Path(sys.executable).parent / "uv", "pip", "compile", installs.ROOT / "setup.py",
         "--all-extras", "--python-version", version, "--constraint",
         installs.ROOT / "constraints.txt", "--output-file", tmp_path / "versions.txt",
         *(option for name in sorted(names) for option in ("--only-binary", name))],
        check=True, capture_output=True, cwd=tmp_path,
    )  # fmt: skip
