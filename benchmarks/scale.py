"""How fast versions are built on Beam, against TFDS's own Beam writer on the same runner.

One builder's rows, declared as units and as a Beam transform, are built by this package on Beam, by
its local engine, and by TFDS on Beam, in turn, each build in a process of its own that times only
the build, not the imports. Memory is the largest resident set of the process tree, above what was
resident after the imports; workers of Dask are processes of that tree.

    python benchmarks/scale.py [--runs 3] [--sizes 10000,100000] [--kinds table,images]
        [--runner in-process|dask|prism] [--option NAME=VALUE] [--json FILE]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

# What is compared: (ours, peer) -> the multiple of the peer's examples per second to be reached.
TARGETS: dict[tuple[str, str], float | None] = {
    ("units", "tfds"): 3, ("transform", "tfds"): 3, ("units", "local"): None,
}  # fmt: skip
WHO = ("units", "transform", "local", "tfds")


def build_once(who: str, total: int, options: dict[str, str], directory: str) -> None:
    """Builds, and prints the seconds and the memory as JSON."""
    import scale_builders
    import tensorflow_datasets as tfds
    from apache_beam.options.pipeline_options import PipelineOptions

    from my_datasets.building.engines.beam.runners import Submission
    from my_datasets.building.options import BuildOptions

    tfds.disable_progress_bar()
    made: Any = scale_builders.BUILDERS[who](data_dir=directory)
    config = tfds.download.DownloadConfig(num_shards=8)
    ours: dict[str, Any] = {}
    if who == "tfds":
        submission = Submission(options)
        config.beam_runner = submission.pipeline().runner
        config.beam_options = PipelineOptions.from_dictionary(submission.options)
    else:
        on_beam: dict[str, Any] = {"engine": "beam", "beam_options": options}
        ours["build_options"] = BuildOptions(**({} if who == "local" else on_beam))
    with _Memory() as memory:
        begin = time.perf_counter()
        made.download_and_prepare(download_config=config, **ours)
        seconds = time.perf_counter() - begin
    if made.info.splits["train"].num_examples != total:
        raise SystemExit(f"{who} built {made.info.splits['train'].num_examples} examples")
    print(json.dumps({"seconds": seconds, "memory": memory.most}))


class _Memory:
    """Looks at the memory of this process and its children until it is left."""

    def __init__(self) -> None:
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "_Memory":
        self._before = _resident()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.most = max(self.most, _resident() - self._before)


def _resident() -> int:
    total = 0
    process = psutil.Process()
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_full_info().pss
        except (psutil.Error, AttributeError):
            continue
    return total


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--kinds", default="table,images")
    parser.add_argument("--who", default=",".join(WHO))
    parser.add_argument("--runner", default="in-process")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    options = {"runner": arguments.runner}
    options |= dict(option.split("=", 1) for option in arguments.option)
    if arguments.once:
        who, total = arguments.once
        build_once(who, int(total), options, arguments.directory)
        return
    results = {}
    for kind in arguments.kinds.split(","):
        for total in map(int, arguments.sizes.split(",")):
            wanted = arguments.who.split(",")
            found: dict[str, list[dict[str, float]]] = {who: [] for who in wanted}
            for _ in range(arguments.runs):
                for who, runs in found.items():
                    runs.append(_apart(who, kind, total, options))
            results[f"{kind} {total}"] = found
            _report(kind, total, arguments.runner, found)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def _apart(who: str, kind: str, total: int, options: dict[str, str]) -> dict[str, float]:
    environment = {
        **os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
        "BENCHMARK_KIND": kind, "BENCHMARK_EXAMPLES": str(total),
    }  # fmt: skip
    given = [f"--option={name}={value}" for name, value in options.items() if name != "runner"]
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [
                sys.executable, __file__, "--once", who, str(total), "--directory", directory,
                "--runner", options["runner"], *given,
            ],
            check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _report(kind: str, total: int, runner: str, found: dict[str, list[dict[str, float]]]) -> None:
    print(f"{kind}, {total:,} examples, {runner}")
    for who, runs in found.items():
        middle = statistics.median(run["seconds"] for run in runs)
        memory = max(run["memory"] for run in runs)
        print(f"  {who:<10} {total / middle:>10,.0f} examples/s {memory / 1e6:>8,.0f} MB")
    for (ours, peer), target in TARGETS.items():
        if ours in found and peer in found:
            pairs = zip(found[ours], found[peer], strict=True)
            ratios = sorted(b["seconds"] / a["seconds"] for a, b in pairs)
            wanted = f"; target {target:g}" if target is not None else ""
            middle = statistics.median(ratios)
            spread = f"{middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            print(f"  {ours} / {peer:<8} {spread}{wanted}", flush=True)


if __name__ == "__main__":
    main()
