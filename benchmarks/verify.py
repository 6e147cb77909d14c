"""How fast versions are verified and compared, against `sha256sum` and a plain pass of TFDS.

Each measurement is a process of its own, in turn, `--runs` times. Files are in the page cache: what
is measured is the work, not the disk. Rates are of the shards' bytes, or of examples.
"""

import argparse
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

# (ours, peer) -> what must be reached, as a multiple; by workload.
TARGETS: dict[str, dict[tuple[str, str], float | None]] = {
    "table": {
        ("bytes-1", "sha256sum"): 0.9, ("bytes", "sha256sum"): None, ("deep", "tfds"): 5,
        ("diff", "tfds"): None,
    },
    "photos": {
        ("bytes-1", "sha256sum"): 0.9, ("bytes", "sha256sum"): None, ("deep", "tfds"): None,
        ("diff", "tfds"): None,
    },
}  # fmt: skip
SIZES = {"table": 500_000, "photos": 2_000}


def measured(who: str, directory: Path) -> float:
    """Returns the seconds that something takes, without the imports it needs."""
    version = next(directory.glob("benchmark/[0-9]*"))
    if who == "sha256sum":
        files = [str(path) for path in load.shards(directory)]
        begin = time.perf_counter()
        subprocess.run(["sha256sum", *files], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begin
    if who == "tfds":
        data = load.tfds_data(directory)
        begin = time.perf_counter()
        for _ in data:
            pass
        return time.perf_counter() - begin
    from my_datasets.comparison.diff import diff
    from my_datasets.verification.verifier import Level, verify

    if who == "diff":
        # Without manifests, all examples of both have to be read; as if features were added.
        other = next((directory / "other").glob("benchmark/[0-9]*"))
        begin = time.perf_counter()
        found = diff(version, other)
        if [change for change in found.changes if change.bump > 1]:
            raise SystemExit(f"they differ: {found.changes}")
        return time.perf_counter() - begin
    level = Level.DEEP if who == "deep" else Level.BYTES
    begin = time.perf_counter()
    report = verify(version, level=level, workers=1 if who.endswith("-1") else None)
    seconds = time.perf_counter() - begin
    if not report.is_good:
        raise SystemExit(f"not good: {report.issues}")
    return seconds


def prepared(kind: str, directory: Path, total: int, photos: Path | None) -> int:
    """Builds a version, and a copy of it without a manifest; returns the bytes of its shards."""
    import shutil

    load.build(kind, directory, total, photos)
    shutil.copytree(directory / "benchmark", directory / "other" / "benchmark")
    for path in (directory / "other").rglob("my_datasets_manifest.json"):
        path.unlink()
    return sum(Path(path).stat().st_size for path in load.shards(directory / "benchmark"))


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    if sys.argv[1:2] == ["--once"]:
        print(measured(sys.argv[2], Path(sys.argv[3])))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--photos", type=Path, help="a directory of photographs")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for kind, targets in TARGETS.items():
        if kind == "photos" and arguments.photos is None:
            continue
        total = int(SIZES[kind] * arguments.scale)
        with tempfile.TemporaryDirectory() as scratch:
            size = prepared(kind, Path(scratch), total, arguments.photos)
            everybody = sorted({who for pair in targets for who in pair})
            found: dict[str, list[float]] = {who: [] for who in everybody}
            for _ in range(arguments.runs):
                for who, seconds in found.items():
                    seconds.append(_once(who, scratch))
        results[kind] = _reported(kind, total, size, found, targets)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def _once(who: str, directory: str) -> float:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, __file__, "--once", who, directory], check=True, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    return float(done.stdout.splitlines()[-1])


def _reported(
    kind: str,
    total: int,
    size: int,
    found: dict[str, list[float]],
    targets: dict[tuple[str, str], float | None],
) -> dict[str, Any]:
    print(f"{kind}: {total:,} examples, {size / 1e6:,.1f} MB of shards")
    for who, seconds in found.items():
        middle = statistics.median(seconds)
        print(f"  {who:<10} {size / middle / 1e6:,.0f} MB/s, {total / middle:,.0f} examples/s")
    ratios = {}
    for (ours, peer), target in targets.items():
        both = [b / a for a, b in zip(found[ours], found[peer], strict=True)]
        ratios[f"{ours} / {peer}"] = both
        wanted = f"; target {target:g}" if target is not None else ""
        print(f"  {ours} / {peer:<10} {load.spread(both)}{wanted}", flush=True)
    return {"examples": total, "bytes": size, "seconds": found, "ratios": ratios}


if __name__ == "__main__":
    main()
