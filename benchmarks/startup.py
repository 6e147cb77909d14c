"""How long the command line takes to answer, against TFDS's own.

Runs `my-datasets --help` and `my-datasets list` in turn with `tfds --help`, several times, and
compares the CPU seconds (user and system) that each process used, pair by pair. Start-up work is
CPU work; the wall-clock time is given beside it.

    python benchmarks/startup.py [--runs 5] [--json results.json]
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

TARGET_RATIO = 20.0
TARGET_CPU_SECONDS = 0.4


@dataclass(frozen=True)
class Run:
    """One process: CPU and wall-clock seconds."""

    cpu: float
    wall: float


def measure(command: list[str]) -> Run:
    """Runs a command to its end, its output thrown away."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def spread(values: list[float]) -> str:
    """Returns `min - median - max` of some figures."""
    return f"{min(values):8.2f} - {statistics.median(values):8.2f} - {max(values):8.2f}"


def main() -> None:
    """Measures, prints a table, and writes JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    bin_dir = Path(sys.executable).parent
    peer = [str(bin_dir / "tfds"), "--help"]
    ours = {
        "my-datasets --help": [str(bin_dir / "my-datasets"), "--help"],
        "my-datasets list": [str(bin_dir / "my-datasets"), "list"],
    }
    for command in (peer, *ours.values()):  # fill the page cache and write the .pyc files
        measure(command)
    runs: dict[str, list[Run]] = {name: [] for name in ours}
    peers: list[Run] = []
    for _ in range(arguments.runs):
        peers.append(measure(peer))
        for name, command in ours.items():
            runs[name].append(measure(command))

    print(f"{arguments.runs} runs of each, in turn       min -   median -      max")
    print(f"tfds --help          CPU s  {spread([run.cpu for run in peers])}")
    results = {}
    for name, mine in runs.items():
        cpu = [run.cpu for run in mine]
        ratios = [theirs.cpu / run.cpu for theirs, run in zip(peers, mine, strict=True)]
        print(f"{name:20} CPU s  {spread(cpu)}")
        print(f"{'':20} times  {spread(ratios)}")
        results[name] = {
            "ratios": ratios,
            "runs": [asdict(run) for run in mine],
            "meets_ratio": statistics.median(ratios) >= TARGET_RATIO,
            "meets_cpu": statistics.median(cpu) <= TARGET_CPU_SECONDS,
        }
    print(f"target: {TARGET_RATIO:.0f} times faster, at most {TARGET_CPU_SECONDS} s of CPU")
    if arguments.json:
        document = {"tfds --help": [asdict(run) for run in peers], **results}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
