"""Whether builds on Beam move and write what `docs/scaling.md` predicts, from 10,000 rows upwards.

One process for each size builds rows of 13 numbers on the in-process runner, notes each file that
is put among the work, and each block that Beam moves, and compares them with the costs that the
page argues with. Memory is the largest of the process, above what it had before the build.

    python benchmarks/scale_costs.py [--sizes 10000,100000,1000000,10000000] [--json FILE]
"""

import argparse
import collections
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

# The costs of docs/scaling.md in bytes. Of a record: in the index of a run or part, in a block, in
# the sidecars of a shard, in what is found in a shard.
INDEX, IN_BLOCK, SIDECARS, HASH = 52, 45, 24, 32
# Of the statistics of a feature of numbers, in each shard.
STATISTICS, FEATURES = 85_000, 13
# Of a report; that of a run tells of each unit in it.
OF_RUN, OF_UNIT, OF_PART, OF_SHARD = 400, 100, 250, 400
_BATCH = 10_000
_UNITS = 50


def rows(unit: int) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yields the rows of a unit, in columns."""
    total = int(os.environ["BENCHMARK_EXAMPLES"])
    first, last = unit * total // _UNITS, (unit + 1) * total // _UNITS
    rng = np.random.default_rng(unit)
    for begin in range(first, last, _BATCH):
        count = min(_BATCH, last - begin)
        columns: dict[str, Any] = {f"x{n}": rng.random(count, np.float32) for n in range(12)}
        columns["label"] = np.arange(count) % 10
        keys = pa.array(np.arange(begin, begin + count)).cast(pa.string())
        yield keys, pa.RecordBatch.from_pydict(columns)


def build(directory: str) -> dict[str, Any]:
    """Builds, and returns what was written and moved."""
    import scale
    import tensorflow_datasets as tfds

    import my_datasets
    from my_datasets.building.engines.beam import buckets
    from my_datasets.building.engines.beam.workspace import SharedDirectory
    from my_datasets.building.options import BuildOptions

    class Rows(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = "benchmark_costs"

        def _info(self) -> Any:
            features: dict[str, Any] = {f"x{n}": np.float32 for n in range(12)}
            features["label"] = tfds.features.ClassLabel(num_classes=10)
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, _: Any) -> Any:
            return {"train": self.units(rows, range(_UNITS))}

    files: collections.Counter[str] = collections.Counter()
    sizes: collections.Counter[str] = collections.Counter()

    def note(name: str, size: int) -> None:
        kind = name.partition("/")[0]
        is_report = name.endswith(".report.json") or (kind == "parts" and name.endswith(".json"))
        if kind == "generated" and not is_report and name.endswith(".json"):
            return  # of the building process: names of units, and which attempts count
        files[f"{kind} reports" if is_report else kind] += 1
        sizes[f"{kind} reports" if is_report else kind] += size

    put, packed = SharedDirectory.put, buckets.packed

    def noted_put(self: SharedDirectory, path: Path, name: str) -> None:
        note(name, path.stat().st_size)
        put(self, path, name)

    def noted_packed(*arguments: Any) -> bytes:
        block = packed(*arguments)
        note("blocks", len(block))
        return block

    change: Callable[..., None] = setattr
    change(SharedDirectory, "put", noted_put)
    change(buckets, "packed", noted_packed)
    tfds.disable_progress_bar()
    options = BuildOptions(engine="beam", report=lambda _: None)
    builder = Rows(data_dir=directory)
    with scale._Memory() as memory:
        begin = time.perf_counter()
        builder.download_and_prepare(build_options=options)
        seconds = time.perf_counter() - begin
    shards = [one for one in Path(builder.data_dir).iterdir() if one.suffix != ".npy"]
    data = sum(one.stat().st_size for one in shards if "tfrecord" in one.name)
    return {
        "seconds": seconds, "memory": memory.most, "data": data, "files": files, "bytes": sizes,
        "held": options.memory,
    }  # fmt: skip


def predicted(found: dict[str, Any], total: int) -> dict[str, tuple[float, float]]:
    """Returns files and bytes of each kind as `docs/scaling.md` has them; 0 for any number."""
    data = found["data"]
    keys = sum(len(str(number)) for number in (0, total - 1)) / 2 * total
    parts = max(math.ceil(data / (32 << 20)), min(64, data // (1 << 20)), 1)
    shards = found["files"]["shard reports"]
    return {
        "generated": (0, data + total * INDEX + keys),
        "blocks": (0, data + total * IN_BLOCK + keys),
        "parts": (parts, data + total * INDEX),
        "shards": (3 * shards, data + total * SIDECARS),
        "findings": (2 * shards, total * HASH + shards * FEATURES * STATISTICS),
        "generated reports": (0, found["files"]["generated"] * OF_RUN + _UNITS * OF_UNIT),
        "parts reports": (parts, parts * OF_PART),
        "shard reports": (shards, shards * OF_SHARD),
    }


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", default="10000,100000,1000000,10000000")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(build(arguments.once)))
        return
    results = {}
    for total in map(int, arguments.sizes.split(",")):
        results[total] = found = _apart(total)
        pace, memory = total / found["seconds"], found["memory"] / 1e6
        told = f"{total:,} rows, {found['data'] / 1e6:,.1f} MB: {pace:,.0f} rows/s"
        print(f"{told}, {memory:,.0f} MB of memory")
        for kind, (files, size) in predicted(found, total).items():
            there, sizes = found["files"].get(kind, 0), found["bytes"].get(kind, 0)
            told = f"{there:,} files" + (f" (predicted {files:,})" if files else "")
            print(f"  {kind:<18} {sizes / 1e6:>10,.2f} MB, {sizes / size:.2f} of what was "
                  f"predicted; {told}", flush=True)  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def _apart(total: int) -> dict[str, Any]:
    environment = {
        **os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
        "BENCHMARK_EXAMPLES": str(total),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, __file__, "--once", directory],
            check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
