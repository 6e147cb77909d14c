"""How fast batches come, against TFDS's own reader and what people write by hand.

Each dataset is built once; then every reader goes through it in a process of its own, in turn,
several times. What counts is examples per second after the first second, for some seconds. All but
`tfds` and `naive` shuffle: ours, `torch`, `hf` and `grain` exactly, `mosaic` and `litdata` in
blocks, the others through a buffer of 10,000, or of 1,000 photographs.

    python benchmarks/load.py [--runs 5] [--seconds 5] [--scale 1.0] [--photos DIR]
        [--only table,texts,images,photos,cached] [--only-readers ours,grain,...]
        [--peers-dir DIR] [--json FILE]

`table`, `texts` and `images` come in batches of 256; photographs are resized to 224 x 224, float32,
in batches of 64. `cached` is the second epoch of those. `hf`, `grain`, `webdataset`, `mosaic` and
`litdata` read files of their own formats (`peers.py`), in environments that are installed into
`--peers-dir` as `environments.py` pins them; GB of PyTorch among that. `raw` is no reader:
simplejpeg in as many threads as there are cores, over files in memory.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import peers
from environments import PINS, python_of

BATCH, SIDE = peers.BATCH, peers.SIDE
SIZES = {"table": 500_000, "texts": 200_000, "images": 60_000, "photos": 4_000}
NUMBERS = 12
# Reader -> what must be reached, as a multiple of it.
TARGETS: dict[str, dict[str, float]] = {
    "table": {"tfds": 10, "hand": 1.5, "hf": 1.5, "grain": 1.5},
    "texts": {"tfds": 8, "hand": 1.5, "hf": 1.5, "grain": 1.5},
    "images": {"tfds": 5, "hand": 1.5, "hf": 1.5, "grain": 1.5},
    "photos": {
        "naive": 4, "tuned": 1.25, "torch": 2, "hf": 2, "webdataset": 2, "mosaic": 2, "litdata": 2,
        "grain": 2, "raw": 0.9,
    },
    "cached": {"tuned-cached": 1},
}  # fmt: skip
OURS = {"table": ["ours", "ours-numpy"], "texts": ["ours", "ours-numpy"],
        "images": ["ours", "ours-numpy"], "photos": ["ours", "ours-torch"],
        "cached": ["ours-cached"]}  # fmt: skip


# --- The data -----------------------------------------------------------------------------------


def build(kind: str, directory: Path, total: int, photos: Path | None, report: Any = None) -> None:
    """Builds a dataset of some examples; `report` is told how far it is."""
    import tensorflow_datasets as tfds

    import my_datasets
    from my_datasets import sources

    tfds.disable_progress_bar()
    rng = np.random.default_rng(0)
    source: Any
    if kind == "table":
        columns: dict[str, Any] = {
            f"x{i:02}": rng.normal(size=total).astype(np.float32) for i in range(NUMBERS)
        }
        source = sources.arrays({**columns, "label": rng.integers(0, 10, total)})
        features = source.features()
    elif kind == "rows":
        numbers = rng.normal(size=(total, NUMBERS)).tolist()
        names = [f"x{i:02}" for i in range(NUMBERS)]
        source = [
            (i, {**dict(zip(names, row, strict=True)), "label": i % 10})
            for i, row in enumerate(numbers)
        ]
        features = tfds.features.FeaturesDict(
            {**dict.fromkeys(names, np.float32), "label": np.int64}
        )
    elif kind == "texts":
        import pyarrow as pa

        words = np.array(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"])
        texts = [" ".join(some) for some in words[rng.integers(0, 8, (total, 12))]]
        source = sources.table(pa.table({"text": texts, "label": rng.integers(0, 2, total)}))
        features = source.features()
    elif kind == "images":
        shades = (np.arange(28)[:, None] * np.arange(28) // 3).astype(np.uint8)
        pixels = shades[None, :, :, None] + rng.integers(0, 40, (total, 28, 28, 1), np.uint8)
        source = sources.arrays({"image": pixels, "label": rng.integers(0, 10, total)})
        features = tfds.features.FeaturesDict(
            {"image": tfds.features.Image(shape=(28, 28, 1)), "label": np.int64}
        )
    else:
        if photos is None:
            raise SystemExit("--photos names a directory of photographs")
        files = [path.read_bytes() for path in sorted(photos.iterdir()) if path.is_file()]
        source = [
            (i, {"image": _file(files[i % len(files)]), "label": i % 10}) for i in range(total)
        ]
        features = tfds.features.FeaturesDict(
            {"image": tfds.features.Image(shape=(None, None, 3)), "label": np.int64}
        )
    first, second = ("text", "label") if kind == "texts" else ("image", "label")

    class Benchmark(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = "benchmark"

        def _info(self) -> Any:
            keys = None if kind in ("table", "rows") else (first, second)
            return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=keys)

        def _split_generators(self, dl_manager: Any) -> Any:  # noqa: ARG002
            return {"train": source}

    Benchmark(data_dir=directory).download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=8),
        build_options=my_datasets.BuildOptions(report=report),
    )


def _file(data: bytes) -> Any:
    import io

    return io.BytesIO(data)


# --- The readers --------------------------------------------------------------------------------


def shards(directory: Path) -> list[str]:
    """Returns the shards of the dataset."""
    return [str(path) for path in sorted(directory.rglob("*.tfrecord-*")) if path.suffix != ".npy"]


def tfds_data(directory: Path, **options: Any) -> Any:
    """Returns the dataset as TFDS reads it."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(next(directory.glob("benchmark/[0-9]*")))
    return builder.as_dataset(split="train", **options)


def resized(image: Any, label: Any) -> Any:
    """Returns an image as tutorials make it."""
    import tensorflow as tf

    return tf.image.resize(image, (SIDE, SIDE)) / 255.0, label


def by_hand(kind: str, directory: Path) -> Any:
    """Returns the dataset as somebody would read it who knows `tf.data`: batches are parsed."""
    import tensorflow as tf

    if kind == "table":
        spec: dict[str, Any] = {
            f"x{i:02}": tf.io.FixedLenFeature([], tf.float32) for i in range(NUMBERS)
        }
    else:
        name = "text" if kind == "texts" else "image"
        spec = {name: tf.io.FixedLenFeature([], tf.string)}
    spec["label"] = tf.io.FixedLenFeature([], tf.int64)
    data = tf.data.Dataset.from_tensor_slices(shards(directory)).interleave(
        tf.data.TFRecordDataset,
        cycle_length=8,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    data = data.shuffle(10_000).batch(BATCH[kind])

    def parsed(records: Any) -> Any:
        found = tf.io.parse_example(records, spec)
        if kind == "images":
            decode = lambda png: tf.io.decode_png(png, 1)  # noqa: E731
            found["image"] = tf.map_fn(
                decode, found["image"], fn_output_signature=tf.uint8, parallel_iterations=32
            )
        return found

    return data.map(parsed, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def reader(who: str, kind: str, directory: Path) -> Any:
    """Returns batches, without an end or for one epoch."""
    size = BATCH[kind]
    if who.startswith("ours"):
        return ours(who, kind, directory)
    if who in ("torch", "raw"):
        return (torch_pillow if who == "torch" else raw_decoding)(kind, directory)
    import tensorflow as tf

    if who == "hand":
        return by_hand(kind, directory).repeat()
    if who == "tfds":
        data = tfds_data(directory, shuffle_files=True).batch(size).repeat()
    elif who == "naive":
        data = tfds_data(directory, as_supervised=True).map(resized).batch(size)
    else:
        data = tfds_data(directory, as_supervised=True, shuffle_files=True)
        data = data.map(resized, num_parallel_calls=tf.data.AUTOTUNE)
        data = data.cache() if who == "tuned-cached" else data
        data = data.shuffle(1_000).batch(size).prefetch(tf.data.AUTOTUNE)
    return data


def ours(who: str, kind: str, directory: Path) -> Any:
    """Returns this package's batches."""
    import my_datasets

    options: dict[str, Any] = {
        "data_dir": directory, "batch_size": BATCH[kind], "shuffle": True, "epochs": None
    }  # fmt: skip
    if kind == "photos":
        options |= {"image_size": (SIDE, SIDE), "image_dtype": "float32", "as_supervised": True}
    if who == "ours-numpy":
        return my_datasets.batches("benchmark", **options)
    if who == "ours-torch":
        return my_datasets.torch_loader("benchmark", **options)
    if who == "ours-cached":
        options["cache"] = "memory"
    return my_datasets.pipeline("benchmark", **options)


def torch_pillow(kind: str, directory: Path) -> Any:
    """Returns a `DataLoader` over files, decoded by Pillow in a process for each core."""
    import io

    import PIL.Image
    import torch

    files = sorted((directory / "files").iterdir())
    if kind != "photos":
        raise SystemExit("files are there of photographs only")

    class Photos(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, i: int) -> Any:
            image = PIL.Image.open(io.BytesIO(files[i].read_bytes())).convert("RGB")
            pixels = np.asarray(image.resize((SIDE, SIDE), PIL.Image.Resampling.BILINEAR))
            return torch.from_numpy(pixels.copy()).float() / 255, i % 10

    return torch.utils.data.DataLoader(
        Photos(), batch_size=BATCH[kind], shuffle=True, num_workers=os.cpu_count() or 1
    )


def raw_decoding(kind: str, directory: Path) -> Iterable[Any]:
    """Yields as many decoded photographs as a batch has, and nothing more is done to them."""
    from concurrent.futures import ThreadPoolExecutor

    import simplejpeg

    files = [path.read_bytes() for path in sorted((directory / "files").iterdir())[:1000]]

    def decoded(data: bytes) -> int:
        return len(simplejpeg.decode_jpeg(data, fastdct=True))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for begin in itertools.cycle(range(0, len(files) - BATCH[kind], BATCH[kind])):
            yield list(pool.map(decoded, files[begin : begin + BATCH[kind]]))


# --- Measuring ----------------------------------------------------------------------------------


def measured(who: str, kind: str, directory: Path, seconds: float) -> None:
    """Measures a reader in this process."""
    fill = 0
    if who.endswith("-cached"):
        # The first epoch fills the cache. Ours has no end.
        fill = -(-SIZES[kind] // BATCH[kind]) + 1 if who.startswith("ours") else 10**9
    peers.measure(reader(who, kind, directory), seconds, fill)


def prepared_for_others(kind: str, directory: Path) -> None:
    """Writes the same data as Parquet, and photographs as files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import my_datasets
    from my_datasets.records.tf_example.parsing import Parser

    source = my_datasets.source("benchmark", data_dir=directory)
    (directory / "parquet").mkdir()
    batches = []
    for begin in range(0, len(source), 10_000):
        numbers = range(begin, min(begin + 10_000, len(source)))
        if kind in ("images", "photos"):
            raw = source.records.read(np.array(numbers))
            column: Any = Parser(["image", "label"])(raw.data, raw.starts, raw.stops)
            places = zip(column["image"].starts, column["image"].stops, strict=True)
            files = [raw.data[a:b].tobytes() for a, b in places]
            batches.append({"image": files, "label": column["label"].values})
            if kind == "photos":
                (directory / "files").mkdir(exist_ok=True)
                for number, data in zip(numbers, files, strict=True):
                    (directory / f"files/{number:05}.jpg").write_bytes(data)
        else:
            columns = source.columns(numbers)
            texts = {
                name: [one.decode() for one in values] if values.dtype == object else values
                for name, values in columns.items()
            }
            batches.append(texts)
    table = pa.concat_tables([pa.table(batch) for batch in batches])
    pq.write_table(table, directory / "parquet/all.parquet", row_group_size=10_000)


def run(
    who: str, kind: str, directory: Path, seconds: float, pythons: dict[str, str]
) -> dict[str, float]:
    """Measures in a new process."""
    return json.loads(  # type: ignore[no-any-return]
        started(who, ["--once", who, kind, str(directory), str(seconds)], pythons).splitlines()[-1]
    )


def started(who: str, arguments: list[str], pythons: dict[str, str]) -> str:
    """Runs a reader's file with its Python, and returns what it printed."""
    command = [pythons.get(who, sys.executable), peers.__file__ if who in PINS else __file__]
    environment = {
        **os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
        "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    # Not a pipe, which processes that outlive it would keep open.
    with tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(
            command + arguments, check=False, env=environment, stdout=subprocess.PIPE,
            stderr=errors, text=True,
        )  # fmt: skip
        if done.returncode:
            errors.seek(0)
            raise SystemExit(f"{who}: {' '.join(arguments)} failed:\n{errors.read()[-4_000:]}")
    return done.stdout


def spread(values: list[float]) -> str:
    """Returns `min - median - max` of some figures."""
    return f"{min(values):,.2f} - {statistics.median(values):,.2f} - {max(values):,.2f}"


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    if sys.argv[1:2] == ["--once"]:
        who, kind, directory, seconds = sys.argv[2:]
        measured(who, kind, Path(directory), float(seconds))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--photos", type=Path, help="a directory of photographs")
    parser.add_argument("--only", help="workloads, comma-separated")
    parser.add_argument("--only-readers", help="ours and others, comma-separated")
    parser.add_argument(
        "--peers-dir", type=Path, default=Path("~/.cache/my_datasets_benchmarks/peers"),
        help="where the peers' environments are, or are installed",
    )  # fmt: skip
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    wanted = (arguments.only or ",".join(TARGETS)).split(",")
    if arguments.photos is None:
        wanted = [name for name in wanted if name not in ("photos", "cached")]
    readers = {name: [*OURS[name], *TARGETS[name]] for name in wanted}
    if arguments.only_readers:
        chosen = arguments.only_readers.split(",")
        readers = {name: [who for who in some if who in chosen] for name, some in readers.items()}
    pythons = {
        peer: python_of(peer, arguments.peers_dir)
        for peer in PINS
        if any(peer in some for some in readers.values())
    }
    results: dict[str, Any] = {}
    for name in wanted:
        kind = "photos" if name == "cached" else name
        total = int(SIZES[kind] * arguments.scale)
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch)
            build(kind, place, total, arguments.photos)
            prepared_for_others(kind, place)
            for who in readers[name]:
                if who in peers.WRITERS:
                    started(who, ["--prepare", who, kind, scratch], pythons)
            found: dict[str, list[dict[str, float]]] = {who: [] for who in readers[name]}
            for _ in range(arguments.runs):
                for who, runs in found.items():
                    runs.append(run(who, kind, place, arguments.seconds, pythons))
        results[name] = report(name, total, found)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def report(name: str, total: int, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Prints what was measured, and returns it."""
    print(f"{name}: {total:,} examples")
    for who, runs in found.items():
        rates = [one["rate"] for one in runs]
        peak = max(one["peak_kb"] for one in runs) / 1000
        print(f"  {who:<13} {spread(rates)} examples/s; at most {peak:,.0f} MB")
    ratios: dict[str, Any] = {}
    for mine, peer in itertools.product(OURS[name], TARGETS[name]):
        if not (mine in found and peer in found):
            continue
        both = zip(found[mine], found[peer], strict=True)
        ratios[f"{mine} / {peer}"] = [one["rate"] / other["rate"] for one, other in both]
        shown = spread(ratios[f"{mine} / {peer}"])
        print(f"  {mine} / {peer:<13} {shown}; target {TARGETS[name][peer]:g}", flush=True)
    return {"examples": total, "rates": found, "ratios": ratios}


if __name__ == "__main__":
    main()
