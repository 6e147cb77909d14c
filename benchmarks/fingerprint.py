"""What it costs to know whether prepared data are stale, in a package of 666 modules.

Makes the package, with a builder that uses functions of five of its modules, and imports them from
one that imports all. Measures the CPU time of a builder's fingerprint in a new process: the first
one, and one more as each further `as_dataset` computes it; by today's rule and by the first one, by
which each module counts whole that a builder's modules import.

    python benchmarks/fingerprint.py [--modules 666] [--json results.json]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGET_RATIO = 20.0
_FUNCTIONS = 40
_BUILDER = """
import numpy as np
import tensorflow_datasets as tfds
import my_datasets
from package.everything import f0

class Bench(my_datasets.Builder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")
    name = "bench"

    def _info(self):
        features = tfds.features.FeaturesDict({"n": np.int64})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        yield 0, {"n": f0(0)}
"""
_MEASURE = """
import json, sys, time
from my_datasets.builders import fingerprint
from package.builder import Bench

builder = Bench(data_dir=sys.argv[1])
times = []
for _ in range(2):
    begin = time.process_time()
    found = fingerprint.fingerprint(builder, sys.argv[2])
    times.append(time.process_time() - begin)
modules = sum(name.startswith("source of") for name in found)
print(json.dumps({"first": times[0], "again": times[1], "modules": modules}))
"""


def make(folder: Path, modules: int) -> None:
    """Writes the package: each module has forty functions; one uses something of all others."""
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    for number in range(modules):
        lines: list[str] = []
        for function in range(_FUNCTIONS):
            # The first function of each module leads on, for five modules; the others do not.
            leads = function == 0 and number > modules - 5
            inner = f"_next(value, {function})" if leads else f"(value * {function}) % {number + 2}"
            lines += [
                f"def f{function}(value):",
                f"    '''Number {function}.'''",
                f"    found = [{inner}, {{'a': value + {function}, 'b': (value, value)}}]",
                "    return sum(one for one in found if isinstance(one, int)) or value",
            ]
        if number > modules - 5:
            lines += [
                f"from package.m{number - 1} import f0 as _before",
                "def _next(value, step):",
                "    return _before(value + step)",
            ]
        (package / f"m{number}.py").write_text("\n".join(lines))
    imports = [f"from package.m{number} import f1 as of_m{number}" for number in range(modules)]
    names = ", ".join(f"of_m{number}" for number in range(modules))
    uses = [f"from package.m{modules - 1} import f0", f"def all_of_them(): return [{names}]"]
    (package / "everything.py").write_text("\n".join([*imports, *uses]))
    (package / "builder.py").write_text(_BUILDER)


def main() -> None:
    """Measures, prints a table, and writes JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--modules", type=int, default=666)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, arguments.modules)
        for rule in ("1", "2"):
            command = [sys.executable, "-c", _MEASURE, str(folder / "data"), rule]
            time.sleep(2.5)  # so that the files are not too young to be believed
            run = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
            found[rule] = json.loads(run.stdout.splitlines()[-1])
    for rule, one in found.items():
        print(
            f"rule {rule}: {one['modules']:4} modules, first {1000 * one['first']:8.1f} ms of CPU, "
            f"again {1000 * one['again']:6.1f} ms"
        )
    ratio = found["1"]["first"] / found["2"]["first"]
    print(f"first: {ratio:.0f} times less; target {TARGET_RATIO:.0f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({**found, "ratio": ratio}, indent=2) + "\n")
    sys.exit(ratio < TARGET_RATIO)


if __name__ == "__main__":
    main()
