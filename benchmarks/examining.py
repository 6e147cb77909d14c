"""What digests and statistics add to a build: how long the stage takes that examines its shards.

Each build is a process of its own, with as many workers as there are cores.

    python benchmarks/examining.py [--runs 5] [--scale 1.0] [--photos DIR] [--json FILE]
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import load

# A build with them takes at most so many times as long as one without.
TARGET = 1.15
SIZES = {"rows": 100_000, "table": 400_000, "texts": 200_000, "images": 20_000, "photos": 2_000}


def stages(kind: str, total: int, photos: Path | None) -> dict[str, float]:
    """Returns how long each stage of a build takes, in seconds."""
    from my_datasets.building.progress import BuildProgress

    began: list[tuple[str, float]] = []

    def note(progress: BuildProgress) -> None:
        if not began or began[-1][0] != progress.stage:
            began.append((progress.stage, time.perf_counter()))

    with tempfile.TemporaryDirectory() as directory:
        load.build(kind, Path(directory), total, photos, report=note)
    began.append(("end", time.perf_counter()))
    found: dict[str, float] = {}
    for (stage, begin), (_, end) in itertools.pairwise(began):
        found[stage] = found.get(stage, 0.0) + end - begin
    return found


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--photos", type=Path, help="a directory of photographs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--once", choices=SIZES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        total = int(SIZES[arguments.once] * arguments.scale)
        print(json.dumps(stages(arguments.once, total, arguments.photos)))
        return
    results: dict[str, Any] = {}
    for kind, size in SIZES.items():
        if kind == "photos" and arguments.photos is None:
            continue
        total = int(size * arguments.scale)
        found = [_once(kind, arguments) for _ in range(arguments.runs)]
        ratios = [sum(one.values()) / (sum(one.values()) - one["examining"]) for one in found]
        wall = statistics.median(sum(one.values()) for one in found)
        print(f"{kind}: {total:,} examples, {wall:.2f} s; {load.spread(ratios)}; at most {TARGET}")
        results[kind] = {"examples": total, "stages": found, "ratios": ratios}
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def _once(kind: str, arguments: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--once", kind, "--scale", str(arguments.scale)]
    if arguments.photos is not None:
        command += ["--photos", str(arguments.photos)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    stages: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return stages


if __name__ == "__main__":
    main()
