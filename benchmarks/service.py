"""What a tf.data service with two workers gives, against batches that are made in the trainer.

Data are built once; then each reader goes through them in a process of its own, in turn, several
times. Told are the examples per second after the first second, and how much processor time the
trainer's own process takes for 1,000 examples: to take that off the trainer's host is what a
service is for. Where all runs on one host, it has that host's cores and no more.

    python benchmarks/service.py [--runs 3] [--seconds 4] [--photos DIR] [--json FILE]

`local` is our pipeline in the trainer; `exact`, `static` and `dynamic` are ours through the
service; `packed` is `exact` with TensorFlow's compression; `tf-ops` is what one would write by
hand for the service, TensorFlow's operations only, with ShardingPolicy.DYNAMIC.
"""

import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import load
import numpy as np
import peers

READERS = ["local", "exact", "static", "dynamic", "packed", "tf-ops"]
SIZES = {"table": 400_000, "photos": 2_000}


def drawn(directory: Path, count: int) -> None:
    """Writes photographs of some size, with edges and noise as those of cameras have."""
    import io

    import PIL.Image

    rng = np.random.default_rng(0)
    for i in range(count):
        coarse = PIL.Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((500, 375), PIL.Image.Resampling.BICUBIC)).astype(
            np.int16
        )
        pixels = (pixels + rng.integers(-12, 13, pixels.shape)).clip(0, 255).astype(np.uint8)
        out = io.BytesIO()
        PIL.Image.fromarray(pixels).save(out, "jpeg", quality=90)
        (directory / f"{i:04}.jpg").write_bytes(out.getvalue())


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Yields the URL of a service with two workers."""
    from my_datasets.input_pipeline.service.server import free_port

    ports = [free_port() for _ in range(3)]
    commands = [
        ["dispatcher", f"--port={ports[0]}", *(f"--worker=localhost:{p}" for p in ports[1:])]
    ]
    commands += [
        ["worker", f"--port={port}", f"--dispatcher=localhost:{ports[0]}"] for port in ports[1:]
    ]
    with contextlib.ExitStack() as stack:
        started = []
        for command in commands:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "my_datasets", "serve", *command, "--json"],
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                )
            )  # fmt: skip
            stack.callback(process.terminate)
            started.append(process)
        for process in started:
            if process.stdout is None or not process.stdout.readline():
                raise SystemExit("a process of the service did not start")
        yield f"grpc://localhost:{ports[0]}"


def reader(who: str, kind: str, directory: Path, url: str) -> Any:
    """Returns batches without an end."""
    import tensorflow as tf

    import my_datasets

    if who == "tf-ops":
        data = photos_by_hand(directory) if kind == "photos" else load.by_hand(kind, directory)
        service = tf.data.experimental.service
        policy = service.ShardingPolicy.DYNAMIC
        return data.apply(service.distribute(policy, url, compression=None)).repeat()
    options: dict[str, Any] = {
        "data_dir": directory, "batch_size": load.BATCH[kind], "shuffle": True, "epochs": None
    }  # fmt: skip
    if kind == "photos":
        options |= {"image_size": (load.SIDE, load.SIDE), "image_dtype": "float32"}
    if who == "local":
        return my_datasets.pipeline("benchmark", **options)
    if who == "packed":
        from my_datasets.input_pipeline.service import receiver

        receiver.Service.options = {"compression": "AUTO"}  # type: ignore[assignment]
    sharding: Any = "exact" if who == "packed" else who
    return my_datasets.pipeline("benchmark", service=url, sharding=sharding, **options)


def photos_by_hand(directory: Path) -> Any:
    """Returns photographs as TensorFlow's operations read them."""
    import tensorflow as tf

    spec = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], "int64"),
    }

    def parsed(record: Any) -> Any:
        found = tf.io.parse_single_example(record, spec)
        image = tf.io.decode_jpeg(found["image"], 3)
        return tf.image.resize(image, (load.SIDE, load.SIDE)) / 255.0, found["label"]

    files = tf.data.Dataset.from_tensor_slices(load.shards(directory)).shuffle(64)
    data = files.interleave(tf.data.TFRecordDataset, cycle_length=4, deterministic=False)
    return data.shuffle(1_000).map(parsed, tf.data.AUTOTUNE).batch(load.BATCH["photos"]).prefetch(2)


def measured(who: str, kind: str, directory: Path, url: str, seconds: float) -> dict[str, float]:
    """Returns how fast a reader is, and what it costs this process."""
    batches = iter(reader(who, kind, directory, url))
    begin, warm = time.perf_counter(), False
    count, used, start = 0, 0.0, 0.0
    while not warm or time.perf_counter() - start < seconds:
        batch = next(batches)
        if warm:
            count += peers.size_of(batch)
        elif time.perf_counter() - begin >= 1:
            warm, start, used = True, time.perf_counter(), processor_time()
    rate = count / (time.perf_counter() - start)
    return {"rate": rate, "cpu_s_per_1000": 1000 * (processor_time() - used) / count}


def processor_time() -> float:
    """Returns the seconds that this process took of all cores."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def once(arguments: list[str]) -> dict[str, float]:
    """Measures in a new process."""
    done = subprocess.run(
        [sys.executable, __file__, "--once", *arguments], check=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    """Measures all, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--photos", type=Path, help="photographs  [default: some are drawn]")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--once", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        who, kind, directory, url, seconds = given.once
        print(json.dumps(measured(who, kind, Path(directory), url, float(seconds))))
        return
    results: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as work, served() as url:
        photos = given.photos
        if photos is None:
            photos = Path(work, "drawn")
            photos.mkdir()
            drawn(photos, 200)
        for kind, total in SIZES.items():
            directory = Path(work, kind)
            load.build(kind, directory, total, photos)
            runs: dict[str, list[dict[str, float]]] = {who: [] for who in READERS}
            for _ in range(given.runs):
                for who in READERS:
                    runs[who].append(once([who, kind, str(directory), url, str(given.seconds)]))
            results[kind] = {
                who: {key: statistics.median(one[key] for one in some) for key in some[0]}
                for who, some in runs.items()
            }
            for who, found in results[kind].items():
                print(
                    f"{kind:8} {who:8} {found['rate']:12,.0f} examples/s "
                    f"{found['cpu_s_per_1000']:9.3f} s of the trainer for 1,000", flush=True,
                )  # fmt: skip
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
