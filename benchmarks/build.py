"""How fast versions are built, against TFDS's own `download_and_prepare`.

Each workload is built by this package and by TFDS, in turn, several times, each build in a process
of its own that times only the build, not the imports. The raw data is in files before; TFDS gets a
plain generator of the same examples. The memory is the proportional set size of the process tree,
above what the process had after its imports, sampled in one more run that is not timed: looking at
it stops the processes for a while.

    python benchmarks/build.py [--runs 3] [--scale 1.0] [--only table-columns,...] [--json FILE]
        [--photos DIR] [--hf-python PYTHON]

`--hf-python` names the Python of an environment with Hugging Face `datasets`, which then builds
the tables and texts from the same generator, too.
"""

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

FEATURES = 12
# In the environment of a build whose memory is looked at.
WATCHED = "BENCHMARK_WATCHES_MEMORY"


@dataclass(frozen=True)
class Workload:
    """What is built.

    Attributes:
      examples: How many, at scale 1.
      target: How many times TFDS's examples per second are aimed at.
      hf: Whether Hugging Face `datasets` builds it, too.
      max_memory: What our build may use, in bytes; None for its default.
    """

    examples: int
    target: float | None
    hf: bool = False
    max_memory: int | None = None


WORKLOADS = {
    "table-columns": Workload(1_000_000, 30, hf=True),
    "table-rows": Workload(1_000_000, 4, hf=True),
    "texts-columns": Workload(100_000, 15, hf=True),
    "images": Workload(20_000, 4),
    "tensors": Workload(20_000, 10),
    "photos": Workload(4_000, 2.5),
    # 10 GB: for the memory, not for the pace.
    "large": Workload(100_000, None, max_memory=1 << 30),
}


# --- The raw data -------------------------------------------------------------------------------

# Rows of a record batch.
PART = 5_000


def write_raw(workload: str, total: int, directory: Path, photos: Path | None) -> None:
    """Writes what a workload is built from, as its owner would have it, before any build."""
    rng = np.random.default_rng(0)
    if workload.startswith("table"):
        write_table(directory / "raw.arrow", total, lambda n: table(rng, n))
    elif workload == "texts-columns":
        write_table(directory / "raw.arrow", total, lambda n: texts(rng, n))
    elif workload == "images":
        np.save(directory / "image.npy", np.concatenate([image(rng) for _ in range(total)]))
    elif workload == "tensors":
        pixels = rng.integers(0, 256, (total, 32, 32, 3), dtype=np.uint8)
        np.save(directory / "tensor.npy", pixels)
    elif photos is not None:
        many_photos(photos, directory, total)


def write_table(path: Path, total: int, columns: Callable[[int], dict[str, Any]]) -> None:
    """Writes an Arrow file, with a key for each row."""
    import pyarrow as pa

    def batch(begin: int) -> Any:
        n = min(PART, total - begin)
        keys = [f"row-{i}" for i in range(begin, begin + n)]
        return pa.RecordBatch.from_pydict({"key": keys, **columns(n)})

    first = batch(0)
    with pa.ipc.new_file(path, first.schema) as file:
        file.write_batch(first)
        for begin in range(PART, total, PART):
            file.write_batch(batch(begin))


def table(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Returns columns of numbers, and a label."""
    columns: dict[str, Any] = {
        f"feature_{i:02}": rng.normal(size=n).astype(np.float32) for i in range(FEATURES)
    }
    columns["label"] = rng.integers(0, 10, n)
    return columns


WORDS = ("data", "set", "build", "shard", "record", "key", "value", "train", "test", "split")


def texts(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Returns short texts and a label."""
    chosen = rng.choice(np.array(WORDS), (n, 20)).tolist()
    return {"text": [" ".join(words) for words in chosen], "label": rng.integers(0, 2, n)}


def image(rng: np.random.Generator) -> Any:
    """Returns an image as of handwriting: a dark ground and a bright blob."""
    y, x = np.mgrid[:28, :28]
    far = (y - rng.uniform(8, 20)) ** 2 + (x - rng.uniform(8, 20)) ** 2
    pixels = np.clip(300 * np.exp(-far / 20) + rng.normal(0, 6, far.shape), 0, 255)
    pixels[far > 120] = 0
    return pixels.astype(np.uint8)[None, ..., None]


def many_photos(source: Path, target: Path, total: int) -> None:
    """Fills `target` with photographs: each one again and again, its number at its end."""
    found = sorted(path for path in source.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
    found = [path for path in found if 30_000 <= path.stat().st_size <= 110_000]
    for i in range(total):
        # What follows the end of a JPEG is ignored; no two files are the same.
        (target / f"{i:06}.jpg").write_bytes(found[i % len(found)].read_bytes() + i.to_bytes(4))


def rows(workload: str, total: int, raw: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yields the examples one by one."""
    if (raw / "raw.arrow").exists():
        import pyarrow as pa

        with pa.memory_map(str(raw / "raw.arrow")) as stream, pa.ipc.open_file(stream) as file:
            for i in range(file.num_record_batches):
                for row in file.get_batch(i).to_pylist():
                    yield row.pop("key"), row
    elif workload == "large":
        for part in large_parts(total):
            yield from large(part)
    elif workload == "photos":
        yield from photographs(sorted(raw.iterdir()))
    else:
        (path,) = raw.iterdir()
        for i, value in enumerate(np.load(path, mmap_mode="r")):
            yield i, {path.stem: value}


def photographs(paths: list[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields photographs."""
    for path in paths:
        yield path.name, {"image": str(path)}


def large_parts(total: int) -> list[tuple[int, int]]:
    """Returns ranges of large examples."""
    return [(begin, min(begin + 500, total)) for begin in range(0, total, 500)]


def large(part: tuple[int, int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields binaries of 100,000 bytes."""
    rng = np.random.default_rng(part[0])
    for i in range(*part):
        yield i, {"data": rng.bytes(100_000)}


# --- One build, in a process of its own ---------------------------------------------------------


def build_once(who: str, workload: str, total: int, raw: Path) -> None:
    """Builds a workload into a temporary directory, and prints its figures as JSON."""
    with tempfile.TemporaryDirectory() as directory:
        run = _hf if who == "hf" else _tfds
        print(json.dumps(run(who, workload, total, raw, Path(directory))))


def _tfds(who: str, workload: str, total: int, raw: Path, directory: Path) -> dict[str, Any]:
    import tensorflow as tf  # noqa: F401 - its import is not what is measured
    import tensorflow_datasets as tfds

    import my_datasets
    from my_datasets import sources
    from my_datasets.building.engines import local  # noqa: F401 - as above  # noqa: F401 - as above

    tfds.disable_progress_bar()
    features = {
        "table-columns": {
            **{f"feature_{i:02}": np.float32 for i in range(FEATURES)},
            "label": tfds.features.ClassLabel(num_classes=10),
        },
        "texts-columns": {
            "text": tfds.features.Text(),
            "label": tfds.features.ClassLabel(num_classes=2),
        },
        "images": {"image": tfds.features.Image(shape=(28, 28, 1))},
        "tensors": {"tensor": tfds.features.Tensor(shape=(32, 32, 3), dtype=np.uint8)},
        "photos": {"image": tfds.features.Image()},
        "large": {"data": tfds.features.Text()},
    }
    features["table-rows"] = features["table-columns"]
    base = my_datasets.Builder if who == "ours" else tfds.core.GeneratorBasedBuilder

    class Benchmark(base, skip_registration=True):  # type: ignore[misc, valid-type, call-arg]
        VERSION = tfds.core.Version("1.0.0")
        name = "benchmark"

        def _info(self) -> Any:
            dictionary = tfds.features.FeaturesDict(features[workload])
            return tfds.core.DatasetInfo(builder=self, features=dictionary)

        def _split_generators(self, dl_manager: Any) -> Any:  # noqa: ARG002
            return {"train": self._ours() if who == "ours" else self._generate_examples()}

        def _ours(self) -> Any:
            if workload.endswith("columns"):
                return sources.feather(raw / "raw.arrow", key="key")
            if workload in ("images", "tensors"):
                return sources.arrays(raw)
            if workload == "photos":
                paths = sorted(raw.iterdir())
                chosen = [paths[begin : begin + 100] for begin in range(0, len(paths), 100)]
                return self.units(photographs, chosen)
            if workload == "large":
                return self.units(large, large_parts(total))
            return self._generate_examples()

        def _generate_examples(self) -> Iterator[Any]:
            return rows(workload, total, raw)

    builder = Benchmark(data_dir=directory)
    if who == "ours":
        options = my_datasets.BuildOptions(max_memory=WORKLOADS[workload].max_memory)
        work = partial(builder.download_and_prepare, build_options=options)
    else:
        work = builder.download_and_prepare
    return _measured(work, directory)


def _hf(who: str, workload: str, total: int, raw: Path, directory: Path) -> dict[str, Any]:  # noqa: ARG001
    import datasets

    datasets.disable_progress_bars()

    def generate() -> Iterator[Any]:
        for _, row in rows(workload, total, raw):
            yield row

    return _measured(
        lambda: datasets.Dataset.from_generator(generate, cache_dir=str(directory)), directory
    )


def _measured(work: Callable[[], Any], directory: Path) -> dict[str, Any]:
    before = peak = _tree_memory()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while WATCHED in os.environ and not done.wait(0.2):
            peak = max(peak, _tree_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    try:
        work()
    finally:
        seconds = time.perf_counter() - begin
        done.set()
        watcher.join()
    files = [path for path in directory.rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for path in sorted(files):
        if "tfrecord" in path.name and not path.name.endswith(".npy"):
            digest.update(path.read_bytes())
    return {
        "seconds": seconds,
        "memory": peak - before,
        "bytes": sum(path.stat().st_size for path in files),
        "sha256": digest.hexdigest(),
    }


def _tree_memory() -> int:
    processes = _family()
    before: list[str] = []
    total = 0
    while processes != before:  # else what a fork has made shared would count twice
        before, total = processes, 0
        for process in processes:
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{process}/smaps_rollup").read_text("ascii")
                sizes = [line.split()[1] for line in text.splitlines() if line.startswith("Pss:")]
                total += sum(map(int, sizes)) * 1024
        processes = _family()
    return total


def _family() -> list[str]:
    waiting, found = [str(os.getpid())], []
    while waiting:
        process = waiting.pop()
        found.append(process)
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{process}/task/{process}/children").read_text("ascii")
            waiting += children.split()
    return found


# --- All builds ---------------------------------------------------------------------------------


def spread(values: list[float]) -> str:
    """Returns `min - median - max` of some figures."""
    return f"{min(values):7.2f} - {statistics.median(values):7.2f} - {max(values):7.2f}"


def run(
    python: str, who: str, workload: str, total: int, raw: Path, *, watched: bool
) -> dict[str, Any]:
    """Builds once in a new process; its memory is looked at only if it is watched."""
    command = [python, __file__, "--once", who, workload, str(total), str(raw)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    if watched:
        environment[WATCHED] = "1"
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def cat_seconds(photos: Path, directory: Path) -> float:
    """Returns how long it takes to put all photographs into one file."""
    begin = time.perf_counter()
    with (directory / "all").open("wb") as out:
        for path in sorted(photos.iterdir()):
            out.write(path.read_bytes())
        out.flush()
        os.fsync(out.fileno())
    return time.perf_counter() - begin


def compare(name: str, arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Runs one workload, prints its lines, and returns its figures."""
    workload = WORKLOADS[name]
    total = max(1, int(workload.examples * arguments.scale))
    raw = scratch / "raw"
    raw.mkdir()
    write_raw(name, total, raw, arguments.photos)
    found: dict[str, list[Any]] = {"ours": [], "tfds": []}
    memory: dict[str, float] = {}
    if workload.hf and arguments.hf_python:
        found["hf"] = []
    cat = []
    for _ in range(arguments.runs):
        for who in found:
            python = arguments.hf_python if who == "hf" else sys.executable
            found[who].append(run(python, who, name, total, raw, watched=False))
        if name == "photos":
            cat.append(cat_seconds(raw, scratch))
    for who in found:
        python = arguments.hf_python if who == "hf" else sys.executable
        memory[who] = run(python, who, name, total, raw, watched=True)["memory"]
    target = f"; target {workload.target} times TFDS" if workload.target else ""
    print(f"{name}: {total:,} examples{target}")
    pace = [total / figures["seconds"] for figures in found["ours"]]
    print(f"  ours, examples/s         {spread(pace)}")
    result: dict[str, Any] = {
        "workload": asdict(workload), "examples": total, "runs": found, "memory": memory
    }  # fmt: skip
    for who in [who for who in found if who != "ours"]:
        ratios = [
            theirs["seconds"] / ours["seconds"]
            for ours, theirs in zip(found["ours"], found[who], strict=True)
        ]
        result[f"times {who}"] = ratios
        print(f"  times {who:4}               {spread(ratios)}")
    for who, size in memory.items():
        print(f"  memory, {who:4}, MB         {size / 1e6:7.0f}")
    if cat:
        distance = [ours["seconds"] / c for ours, c in zip(found["ours"], cat, strict=True)]
        result["times cat"] = distance
        print(f"  our time / time of cat   {spread(distance)}")
    same = {who: len({figures["sha256"] for figures in runs}) for who, runs in found.items()}
    print(f"  different outputs in {arguments.runs} runs: ours {same['ours']}, TFDS {same['tfds']}")
    return result


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    if sys.argv[1:2] == ["--once"]:
        who, workload, total, raw = sys.argv[2:]
        build_once(who, workload, int(total), Path(raw))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the examples to build")
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, comma-separated")
    parser.add_argument("--photos", type=Path, help="a directory of JPEG files")
    parser.add_argument("--hf-python", help="Python of an environment with `datasets`")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {}
    for name in arguments.only.split(","):
        if name == "photos" and arguments.photos is None:
            print("photos: left out, since --photos names no directory")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            results[name] = compare(name, arguments, Path(scratch))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
