"""Mutation testing: changes one place of a module at a time, and runs the tests that name it.

`make mutants` runs a random sample of the mutants of some packages; with the same seed it is the
same sample. A mutant that no test notices is printed as a diff: it lacks a test, or makes no
difference. cosmic-ray makes the mutants; the tests run in forks of a process that has imported
TensorFlow, which makes a mutant take seconds.
"""

import argparse
import ast
import contextlib
import difflib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("core", "metadata", "resolving", "publishing", "building")
# Suites of their own, and the soak, take too long for each mutant.
_LEFT_OUT = "not (slow or lint or docs or installs or integration or faults)"
# Test files for one mutant: those that name its module most often.
_MOST_FILES = 4
# A mutant that takes longer than this many times the unchanged module, and some seconds, hangs.
_SLOWER, _SECONDS = 4, 30
# Of a module whose unchanged tests take more seconds, no mutants are tried: `no test`.
_LONGEST = 120


@dataclass(frozen=True)
class Mutant:
    """A changed place.

    Attributes:
      module: The module's path, relative to the repository.
      line: The line.
      operator: cosmic-ray's operator.
      occurrence: Which of the places in the module where the operator applies.
    """

    module: str
    line: int
    operator: str
    occurrence: int

    def diff(self) -> str:
        """Returns the change, as a diff without context."""
        old = (ROOT / self.module).read_text("utf-8")
        lines = difflib.unified_diff(
            old.splitlines(), self.code(old).splitlines(), lineterm="", n=0
        )
        return "\n".join(list(lines)[3:])

    def code(self, old: str) -> str:
        """Returns the changed module."""
        try:
            return str(mutate_code(old, get_operator(self.operator)(), self.occurrence) or old)
        except AttributeError:  # cosmic-ray 8.7 cannot replace an exception with a dotted name
            return old


def mutants_of(package: str, count: int, chance: random.Random) -> list[Mutant]:
    """Returns a random sample of a package's mutants, at most one for each place."""
    places: dict[tuple[str, int, int], list[Mutant]] = defaultdict(list)
    for path in sorted((ROOT / "my_datasets" / package).rglob("*.py")):
        module = str(path.relative_to(ROOT))
        left_out = _annotations(path.read_text("utf-8"))
        for item in _all_work_items([path], {}):
            one = item.mutations[0]
            line, column = one.start_pos
            if (line, column) not in left_out:
                found = Mutant(module, line, one.operator_name, one.occurrence)
                places[module, line, column].append(found)
    chosen = chance.sample(sorted(places), min(count, len(places)))
    return [chance.choice(places[place]) for place in chosen]


def _annotations(text: str) -> set[tuple[int, int]]:
    """Returns the positions in annotations, where a change makes no difference."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        for name in ("annotation", "returns"):
            whole = getattr(node, name, None)
            for part in ast.walk(whole) if whole is not None else ():
                if isinstance(part, ast.expr):
                    for column in range(part.col_offset, (part.end_col_offset or 0) + 1):
                        found.add((part.lineno, column))
    return found


def tests_of(module: str) -> list[str]:
    """Returns the test files that name a module most often, or else its package's."""
    package, _, name = module.removesuffix(".py").replace("/", ".").rpartition(".")
    pattern = re.compile(
        rf"{re.escape(package)}\.{name}\b|from {re.escape(package)} import [^\n]*\b{name}\b"
    )
    counts = {path: len(pattern.findall(path.read_text("utf-8"))) for path in _test_files()}
    named = sorted((path for path in counts if counts[path]), key=lambda path: -counts[path])
    if not named:
        folder = ROOT / "tests" / Path(module).parent.relative_to("my_datasets")
        named = sorted(folder.glob("test_*.py"), key=lambda path: path.stat().st_size)
    return [str(path.relative_to(ROOT)) for path in named[:_MOST_FILES]]


def _test_files() -> Iterator[Path]:
    return (path for path in (ROOT / "tests").rglob("test_*.py") if "broken" not in path.parts)


def run_tests(copy: Path, files: list[str], seconds: float) -> tuple[str, float]:
    """Runs test files in a fork; returns `passed`, `failed` or `hung`, and the time it took."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(copy)
        ours = {"", str(ROOT), str(ROOT / "tests")}
        sys.path[:] = [str(copy), *(path for path in sys.path if path not in ours)]
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        import pytest

        alone = ["-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers"]
        os._exit(int(pytest.main(["-x", "-q", *alone, "-m", _LEFT_OUT, *files])))
    while time.monotonic() - start < seconds:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            _end(child)
            code = os.waitstatus_to_exitcode(status)
            return "passed" if code == 0 else "failed", time.monotonic() - start
        time.sleep(0.05)
    _end(child)
    os.waitpid(child, 0)
    return "hung", time.monotonic() - start


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def work(mutants: list[Mutant], copy: Path, results: Path) -> None:
    """Tries mutants in a copy of the checkout, and writes what came of each."""
    base: dict[str, float | None] = {}
    with open(results, "a", encoding="utf-8") as file:
        for one in sorted(mutants, key=lambda one: (one.module, one.line)):
            files = tests_of(one.module)
            if one.module not in base:
                outcome, took = run_tests(copy, files, _LONGEST)
                base[one.module] = took if outcome == "passed" and files else None
            unchanged = base[one.module]
            path = copy / one.module
            old = path.read_text("utf-8")
            new = one.code(old)
            if unchanged is None or new == old:
                outcome = "no test"
            else:
                path.write_text(new, "utf-8")
                try:
                    outcome, _ = run_tests(copy, files, _SLOWER * unchanged + _SECONDS)
                finally:
                    path.write_text(old, "utf-8")
            file.write(json.dumps({**asdict(one), "outcome": outcome}) + "\n")
            file.flush()
            print(f"{outcome:8} {one.module}:{one.line}", flush=True)


def main() -> None:
    """Prints the score of each package, and the mutants that survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--sample", type=int, default=30, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--report", type=Path, default=ROOT / ".mutants.json")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    chosen = [
        one for package in given.packages for one in mutants_of(package, given.sample, chance)
    ]
    print(f"{len(chosen)} mutants of {', '.join(given.packages)}", flush=True)
    # What takes long to import, and nothing of this package: each fork imports that anew.
    import tensorflow_datasets
    import tensorflow_datasets.testing  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        files = subprocess.run(
            ["git", "ls-files", "-z", "-co", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True, text=True,
        ).stdout.split("\0")  # fmt: skip
        results, children = [], []
        for number in range(given.workers):
            copy = Path(folder, str(number))
            for name in filter(None, files):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
            results.append(Path(folder, f"{number}.jsonl"))
            child = os.fork()
            if child == 0:
                try:
                    work(chosen[number :: given.workers], copy, results[-1])
                finally:
                    os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        found = [json.loads(line) for path in results for line in path.read_text().splitlines()]
    for one in found:
        if one["outcome"] == "passed":
            mutant = Mutant(one["module"], one["line"], one["operator"], one["occurrence"])
            one["diff"] = mutant.diff()
            print(f"\nSurvives: {one['module']}:{one['line']}\n{one['diff']}")
    print()
    for package in given.packages:
        prefix = f"my_datasets/{package}/"
        counts = Counter(one["outcome"] for one in found if one["module"].startswith(prefix))
        noticed, tried = counts["failed"] + counts["hung"], sum(counts.values())
        print(f"{package}: {noticed} of {tried} mutants noticed; {dict(counts)}")
    given.report.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
