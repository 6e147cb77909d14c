"""What it takes to go on in the middle of an epoch, and how well an epoch is shuffled.

Ours, `tf.data` with a shuffle buffer of 10,000 through `tf.train.Checkpoint`, and Grain go through
the same numbers, in turn, several times. At 10, 50 and 90 % of an epoch each saves where it is;
what counts is the size of that, the seconds until the next batch comes of a new iterator that it
was restored into, and whether what comes is what would have come.

    python benchmarks/resume.py [--runs 3] [--examples 50000] [--json FILE]

Shuffling is measured by how far examples that are stored next to each other come apart: the mean
distance of their places, of what it would be in a permutation drawn evenly (a third of all), and
the share of them that still follow each other within a batch of 256.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

BATCH, BUFFER, SEED = 256, 10_000, 7
PLACES = (0.1, 0.5, 0.9)
NAMES = ("ours", "tf.data", "grain")


def build(directory: Path, total: int) -> None:
    """Builds a dataset of numbers."""
    import tensorflow_datasets as tfds

    import my_datasets
    from my_datasets import sources

    tfds.disable_progress_bar()
    source = sources.arrays({"number": np.arange(total)})

    class Numbers(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(builder=self, features=source.features())

        def _split_generators(self, dl_manager: Any) -> Any:  # noqa: ARG002
            return {"train": source}

    Numbers(data_dir=directory).download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=8)
    )


def opened(who: str, directory: Path) -> tuple[Any, Callable[[Any, Path], int], Any]:
    """Returns (makes an iterator, saves one and says how large that is, restores one)."""
    if who == "grain":
        return grain(directory)
    import tensorflow as tf

    def save(iterator: Any, place: Path) -> int:
        place.mkdir()
        tf.train.Checkpoint(data=iterator).save(place / "state")
        return sum(file.stat().st_size for file in place.iterdir())

    def restore(iterator: Any, place: Path) -> None:
        path = tf.train.latest_checkpoint(place)
        tf.train.Checkpoint(data=iterator).restore(path).assert_consumed()

    if who == "ours":
        import my_datasets

        train = my_datasets.pipeline(
            "numbers", data_dir=directory, batch_size=BATCH, seed=SEED, shuffle=True
        )
        return train.iterator, save, restore
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(next(directory.glob("numbers/[0-9]*")))
    config = tfds.ReadConfig(shuffle_seed=SEED)
    data = builder.as_dataset(split="train", shuffle_files=True, read_config=config)
    data = data.shuffle(BUFFER, seed=SEED).batch(BATCH)
    return lambda: iter(data), save, restore


def grain(directory: Path) -> tuple[Any, Callable[[Any, Path], int], Any]:
    """Returns the same for Grain, which reads by our source: only its own state is compared."""
    import grain

    import my_datasets

    source = my_datasets.source("numbers", data_dir=directory)
    data = grain.MapDataset.source(source).shuffle(SEED).batch(BATCH)

    def save(iterator: Any, place: Path) -> int:
        place.write_text(json.dumps(iterator.get_state()))
        return place.stat().st_size

    return (
        lambda: iter(data.to_iter_dataset()), save,
        lambda iterator, place: iterator.set_state(json.loads(place.read_text())),
    )  # fmt: skip


def numbers(batch: Any) -> list[int]:
    """Returns the numbers in a batch."""
    found: list[int] = np.asarray(batch["number"]).tolist()
    return found


def measure(who: str, directory: Path, total: int, scratch: Path) -> list[dict[str, Any]]:
    """Returns what it took at each place of an epoch."""
    make, save, restore = opened(who, directory)
    found = []
    for place in PLACES:
        iterator = make()
        for _ in range(int(place * total / BATCH)):
            next(iterator)
        where = scratch / f"{who}-{place}"
        size = save(iterator, where)
        expected = [numbers(batch) for batch in itertools.islice(iterator, 20)]
        begin = time.perf_counter()
        other = make()
        restore(other, where)
        first = numbers(next(other))
        seconds = time.perf_counter() - begin
        rest = [first, *(numbers(batch) for batch in itertools.islice(other, 19))]
        is_exact = rest[: len(expected)] == expected
        found.append({"place": place, "bytes": size, "seconds": seconds, "exact": is_exact})
    return found


def shuffling(order: np.ndarray[Any, Any]) -> dict[str, float]:
    """Returns how well an epoch is shuffled, from its examples' numbers as they are stored."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    apart = np.abs(np.diff(places))
    return {
        "distance": float(apart.mean() / (len(order) / 3)),
        "together": float((apart < BATCH).mean() / (2 * BATCH / len(order))),
    }


def shuffled(who: str, directory: Path, total: int) -> dict[str, float]:
    """Returns the same for a reader; examples are numbered as they are stored."""
    import my_datasets

    stored = my_datasets.source("numbers", data_dir=directory).columns(np.arange(total))["number"]
    rank = np.empty(total, np.int64)
    rank[stored] = np.arange(total)
    if who == "ours, windows of 2 shards":
        batches: Any = my_datasets.batches(
            "numbers", data_dir=directory, batch_size=BATCH, seed=SEED, shuffle_window=2
        )
    else:
        batches = opened(who, directory)[0]()
    return shuffling(rank[np.array([n for batch in batches for n in numbers(batch)])])


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--examples", type=int, default=50_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    total = arguments.examples
    found: dict[str, list[list[dict[str, Any]]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "data"
        build(directory, total)
        for number in range(arguments.runs):
            for who in NAMES:
                place = Path(scratch) / f"run-{number}-{who}"
                place.mkdir()
                found.setdefault(who, []).append(measure(who, directory, total, place))
        quality = {
            who: shuffled(who, directory, total)
            for who in ("ours", "ours, windows of 2 shards", "tf.data", "grain")
        }
    print(f"{total:,} examples, batches of {BATCH}, {arguments.runs} runs")
    for i, share in enumerate(PLACES):
        for who in NAMES:
            runs = [run[i] for run in found[who]]
            seconds = [run["seconds"] for run in runs]
            print(
                f"  at {share:.0%} {who:<8} {runs[0]['bytes']:>10,} bytes, restored in "
                f"{min(seconds):.3f} - {statistics.median(seconds):.3f} - {max(seconds):.3f} s, "
                f"{'exact' if all(run['exact'] for run in runs) else 'NOT exact'}"
            )
        ratio = found["ours"][0][i]["bytes"] / found["tf.data"][0][i]["bytes"]
        print(f"    ours / tf.data: 1/{1 / ratio:,.0f} of the bytes; target 1/100")
    print("shuffling, 1 being that of an evenly drawn permutation")
    for who, one in quality.items():
        print(
            f"  {who:<26} distance {one['distance']:.3f}; neighbours that stay within a batch "
            f"{one['together']:.2f}"
        )
    if arguments.json:
        result = {"examples": total, "runs": found, "shuffling": quality}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
