"""Three kinds of installation, each used from a directory outside the checkout.

* `wheel`: a new environment into which one `pip install` put the built wheel, and nothing else.
* `editable`: the environment that runs these tests.
* `checkout`: an environment with our dependencies but without us, and the checkout on PYTHONPATH.

And `stranger`: that last environment without the checkout, which has never seen this package.
"""

import fnmatch
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import filelock

from tests import zygote

ROOT = Path(__file__).resolve().parent.parent
_UV = Path(sys.executable).parent / "uv"


@dataclass(frozen=True)
class Install:
    """An environment in which to run commands.

    Attributes:
      python: Its interpreter.
      package: The directory of `my_datasets` in it.
      variables: Environment variables beyond a bare environment's.
    """

    python: Path
    package: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def tfds(self) -> list[str]:
        """The `tfds` command."""
        script = self.python.parent / "tfds"
        if str(self.python.parent) in script.read_text("utf-8").splitlines()[0]:
            return [str(script)]
        # The script of a copied environment starts the original's interpreter.
        return [str(self.python), "-m", "tensorflow_datasets.scripts.cli.main"]

    @property
    def my_datasets(self) -> list[str]:
        """The `my-datasets` command."""
        script = self.python.parent / "my-datasets"
        return [str(script)] if script.exists() else [str(self.python), "-m", "my_datasets"]

    def run(self, *command: str | Path, cwd: Path, data_dir: Path, new: bool = False) -> str:
        """Runs a command to its end; returns its stdout. A failure shows both outputs."""
        done = self.attempt(*command, cwd=cwd, data_dir=data_dir, new=new)
        if done.returncode:
            raise RuntimeError(
                f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def attempt(
        self, *command: str | Path, cwd: Path, data_dir: Path, new: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, whatever that is.

        Args:
          command: A script of the environment, or its interpreter and what follows.
          cwd: Where to run it.
          data_dir: The data directory.
          new: In a new interpreter, not in a fork of one that has imported TensorFlow.
        """
        variables = {
            # Not `cwd`, which may be the package itself: Keras writes its settings there.
            "HOME": str(data_dir.parent if data_dir.parent != Path("/") else cwd),
            "LANG": "C.UTF-8",
            "PATH": f"{self.python.parent}:/usr/bin:/bin",
            "TFDS_DATA_DIR": str(data_dir),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **self.variables,
        }
        first, *rest = map(str, command)
        if not new and first == str(self.python):
            return zygote.of(self.python).run(rest, cwd, variables)
        if not new and Path(first).read_text("utf-8").startswith(f"#!{self.python}\n"):
            return zygote.of(self.python).run([first, *rest], cwd, variables)
        return subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=cwd, env=variables
        )


def build_distributions(directory: Path) -> dict[str, Path]:
    """Builds sdist and wheel, the wheel from the sdist, as a release would; once per directory."""
    with filelock.FileLock(f"{directory}.lock"):
        if not directory.exists():
            copy = directory.with_name("source")
            copy_checkout(copy)
            _run(
                _UV, "build", "--quiet", "--build-constraint", ROOT / "constraints.txt",
                "--out-dir", directory, copy,
            )  # fmt: skip
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel}


def make(kind: str, directory: Path) -> Install:
    """Returns an installation, made on first use under `directory`, shared between workers."""
    if kind == "editable":
        return Install(Path(sys.executable), ROOT / "my_datasets")
    wheel_env, bare_env = directory / "wheel", directory / "bare"
    wheel = build_distributions(directory / "dist")["wheel"]
    with filelock.FileLock(directory / "environments.lock"):
        if not bare_env.exists():
            _run(_UV, "venv", "--quiet", "--python", sys.executable, wheel_env)
            _run(
                _UV, "pip", "install", "--quiet", "--python", wheel_env,
                "--constraint", ROOT / "constraints.txt", wheel,
            )  # fmt: skip
            _share_compiled_modules(wheel_env)
            shutil.copytree(wheel_env, bare_env, symlinks=True, copy_function=os.link)
            _run(_UV, "pip", "uninstall", "--quiet", "--python", bare_env, "my_datasets")
    bare = bare_env / "bin/python"
    return {
        "wheel": Install(wheel_env / "bin/python", site_packages(wheel_env) / "my_datasets"),
        "checkout": Install(bare, ROOT / "my_datasets", {"PYTHONPATH": str(ROOT)}),
        "stranger": Install(bare, Path("/nowhere")),
    }[kind]


def _share_compiled_modules(environment: Path) -> None:
    """Links what this environment has compiled: all of TensorFlow takes minutes.

    Python takes up a compiled module only if the size and the time of its source are right.
    """
    ours, theirs = (Path(sysconfig.get_path("purelib")), site_packages(environment))
    for cache in ours.rglob("__pycache__"):
        target = theirs / cache.relative_to(ours)
        if target.parent.is_dir() and not target.exists():
            shutil.copytree(cache, target, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def site_packages(environment: Path) -> Path:
    """Returns where an environment's packages are."""
    return next((environment / "lib").glob("python*/site-packages"))


def source_files() -> set[str]:
    """The checkout's own files: all but those that .gitignore names, and git's. Needs no git."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line]
    found = set()
    for directory, folders, files in os.walk(ROOT):
        parent = Path(directory).relative_to(ROOT)
        folders[:] = [
            name for name in folders if name != ".git" and not _matches(parent / name, ignored)
        ]
        found |= {str(parent / name) for name in files if not _matches(parent / name, ignored)}
    return found - {".git"}


def _matches(path: Path, patterns: list[str]) -> bool:
    """Whether a pattern names a file or folder: by its path where it has a slash, else anywhere."""
    return any(
        fnmatch.fnmatch(str(path), pattern.removeprefix("/"))
        if "/" in pattern
        else fnmatch.fnmatch(path.name, pattern)
        for pattern in patterns
    )


def copy_checkout(target: Path) -> None:
    """Copies the sources: building must not leave files in the checkout."""
    for name in source_files():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


def _run(*command: str | Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run(command, check=True, env=environment)
