"""How fast versions are built, against TFDS's own `download_and_prepare`.

Each workload is built by this package and by TFDS, in turn, several times, each build in a process
of its own that times only the build, not the imports. TFDS gets a plain generator of the same
examples. The memory is the proportional set size of the process tree, sampled, above what the
process had after its imports.

    python benchmarks/build.py [--runs 3] [--scale 1.0] [--only table-columns,...] [--json FILE]
        [--photos DIR] [--hf-python PYTHON]

`--hf-python` names the Python of an environment with Hugging Face `datasets`, which then builds
the tables and texts from the same generator, too.
"""

import argparse
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


# --- The examples -------------------------------------------------------------------------------


def table(begin: int, end: int) -> dict[str, Any]:
    """Returns a part of the table as columns."""
    rng = np.random.default_rng(begin)
    columns: dict[str, Any] = {
        f"feature_{i:02}": rng.normal(size=end - begin).astype(np.float32) for i in range(FEATURES)
    }
    columns["label"] = rng.integers(0, 10, end - begin)
    return columns


WORDS = ("data", "set", "build", "shard", "record", "key", "value", "train", "test", "split")


def texts(begin: int, end: int) -> dict[str, Any]:
    """Returns some short texts as columns."""
    rng = np.random.default_rng(begin)
    words = np.array(WORDS)
    return {
        "text": [" ".join(rng.choice(words, 20)) for _ in range(end - begin)],
        "label": rng.integers(0, 2, end - begin),
    }


def images(begin: int, end: int) -> dict[str, Any]:
    """Returns images as of handwriting: a dark ground and a bright blob."""
    rng = np.random.default_rng(begin)
    y, x = np.mgrid[:28, :28]
    centre = rng.uniform(8, 20, (end - begin, 2, 1, 1))
    far = (y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2
    pixels = np.clip(300 * np.exp(-far / 20) + rng.normal(0, 6, far.shape), 0, 255)
    pixels[far > 120] = 0
    return {"image": pixels.astype(np.uint8)[..., None]}


def tensors(begin: int, end: int) -> dict[str, Any]:
    """Returns raw pixels."""
    rng = np.random.default_rng(begin)
    return {"tensor": rng.integers(0, 256, (end - begin, 32, 32, 3)).astype(np.uint8)}


def large(begin: int, end: int) -> dict[str, Any]:
    """Returns binaries of 100,000 bytes."""
    rng = np.random.default_rng(begin)
    return {"data": [rng.bytes(100_000) for _ in range(end - begin)]}


PART = 5_000
# ... but units of larger examples are smaller.
PARTS = {"photos": 200, "large": 500}


def parts(workload: str, total: int) -> list[tuple[int, int]]:
    """Returns the ranges of examples that units are made of."""
    step = PARTS.get(workload, PART)
    return [(begin, min(begin + step, total)) for begin in range(0, total, step)]


def rows(columns: dict[str, Any], begin: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields columns row by row."""
    names = list(columns)
    for i, values in enumerate(zip(*columns.values(), strict=True)):
        yield f"row-{begin + i}", dict(zip(names, values, strict=True))


SOURCES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "table-columns": table,
    "table-rows": table,
    "texts-columns": texts,
    "images": images,
    "tensors": tensors,
    "large": large,
}


# --- One build, in a process of its own ---------------------------------------------------------


def build_once(who: str, workload: str, total: int, photos: str) -> None:
    """Builds a workload into a temporary directory, and prints its figures as JSON."""
    with tempfile.TemporaryDirectory() as directory:
        run = _hf if who == "hf" else _tfds
        print(json.dumps(run(who, workload, total, photos, directory)))


def _tfds(who: str, workload: str, total: int, photos: str, directory: str) -> dict[str, Any]:
    import pyarrow as pa
    import tensorflow as tf  # noqa: F401 - its import is not what is measured
    import tensorflow_datasets as tfds

    import my_datasets
    from my_datasets.building.engines import local  # noqa: F401 - as above

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
    files = sorted(Path(photos).iterdir())[:total] if workload == "photos" else []

    def generate(part: tuple[int, int]) -> Iterator[Any]:
        begin, end = part
        if workload == "photos":
            for path in files[begin:end]:
                yield path.name, {"image": str(path)}
        elif who == "ours" and workload.endswith("columns"):
            columns = SOURCES[workload](begin, end)
            keys = pa.array([f"row-{i}" for i in range(begin, end)])
            yield keys, pa.RecordBatch.from_pydict(columns)
        else:
            yield from rows(SOURCES[workload](begin, end), begin)

    ranges = parts(workload, total)

    class Benchmark(base, skip_registration=True):  # type: ignore[misc, valid-type, call-arg]
        VERSION = tfds.core.Version("1.0.0")
        name = "benchmark"

        def _info(self) -> Any:
            dictionary = tfds.features.FeaturesDict(features[workload])
            return tfds.core.DatasetInfo(builder=self, features=dictionary)

        def _split_generators(self, dl_manager: Any) -> Any:  # noqa: ARG002
            if who == "ours" and workload != "table-rows":
                return {"train": self.units(self._generate_examples, ranges)}
            return {"train": (pair for part in ranges for pair in self._generate_examples(part))}

        def _generate_examples(self, part: tuple[int, int]) -> Iterator[Any]:
            return generate(part)

    builder = Benchmark(data_dir=directory)
    if who == "ours":
        options = my_datasets.BuildOptions(max_memory=WORKLOADS[workload].max_memory)
        work = partial(builder.download_and_prepare, build_options=options)
    else:
        work = builder.download_and_prepare
    return _measured(work, Path(directory))


def _hf(who: str, workload: str, total: int, photos: str, directory: str) -> dict[str, Any]:  # noqa: ARG001
    import datasets  # type: ignore[import-not-found]

    datasets.disable_progress_bars()

    def generate() -> Iterator[Any]:
        for begin, end in parts(workload, total):
            for _, row in rows(SOURCES[workload](begin, end), begin):
                yield row

    return _measured(
        lambda: datasets.Dataset.from_generator(generate, cache_dir=directory), Path(directory)
    )


def _measured(work: Callable[[], Any], directory: Path) -> dict[str, Any]:
    before = _tree_memory()
    peak = before
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.2):
            peak = max(peak, _tree_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    work()
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
    total = 0
    waiting = [str(os.getpid())]
    while waiting:
        process = waiting.pop()
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text("ascii")
            children = Path(f"/proc/{process}/task/{process}/children").read_text("ascii")
        except OSError:
            continue
        total += sum(int(x.split()[1]) for x in text.splitlines() if x.startswith("Pss:")) * 1024
        waiting += children.split()
    return total


# --- All builds ---------------------------------------------------------------------------------


def many_photos(source: Path, target: Path, total: int) -> None:
    """Fills `target` with photographs: each one again and again, its number at its end."""
    found = sorted(path for path in source.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
    for i in range(total):
        photo = found[i % len(found)]
        # What follows the end of a JPEG is ignored; no two files are the same.
        (target / f"{i:06}.jpg").write_bytes(photo.read_bytes() + i.to_bytes(4, "big"))


def spread(values: list[float]) -> str:
    """Returns `min - median - max` of some figures."""
    return f"{min(values):7.2f} - {statistics.median(values):7.2f} - {max(values):7.2f}"


def run(python: str, who: str, workload: str, total: int, photos: str) -> dict[str, Any]:
    """Builds once in a new process."""
    command = [python, __file__, "--once", who, workload, str(total), photos]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
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
    photos = scratch / "photos"
    if name == "photos":
        photos.mkdir()
        many_photos(arguments.photos, photos, total)
    found: dict[str, list[Any]] = {"ours": [], "tfds": []}
    if workload.hf and arguments.hf_python:
        found["hf"] = []
    cat = []
    for _ in range(arguments.runs):
        for who in found:
            python = arguments.hf_python if who == "hf" else sys.executable
            found[who].append(run(python, who, name, total, str(photos)))
        if name == "photos":
            cat.append(cat_seconds(photos, scratch))
    target = f"; target {workload.target} times TFDS" if workload.target else ""
    print(f"{name}: {total:,} examples{target}")
    pace = [total / figures["seconds"] for figures in found["ours"]]
    print(f"  ours, examples/s         {spread(pace)}")
    result: dict[str, Any] = {"workload": asdict(workload), "examples": total, "runs": found}
    for who in [who for who in found if who != "ours"]:
        ratios = [
            theirs["seconds"] / ours["seconds"]
            for ours, theirs in zip(found["ours"], found[who], strict=True)
        ]
        result[f"times {who}"] = ratios
        print(f"  times {who:4}               {spread(ratios)}")
    for who, runs in found.items():
        print(f"  memory, {who:4}, MB         {spread([r['memory'] / 1e6 for r in runs])}")
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
        who, workload, total, photos = sys.argv[2:]
        build_once(who, workload, int(total), photos)
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
