"""The share of training that is waiting for data: a small network on photographs, on the CPU.

Ours, the tutorials' tuned pipeline and the naive one feed the same network with the same
photographs, each in a process of its own, in turn, several times. What counts is the time in which
the loop waits for its next batch, as a share of all of it, and the examples per second that are
trained on.

    python benchmarks/training.py --photos DIR [--runs 3] [--steps 40] [--scale 0.25] [--json FILE]
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

READERS = ("ours", "tuned", "naive")
_WARM = 5


def train(who: str, directory: Path, steps: int) -> dict[str, float]:
    """Trains for some steps, and returns the share of waiting and the examples per second."""
    import keras
    import tensorflow as tf

    batches = load.reader(who, "photos", directory)
    if who != "naive":
        batches = batches.repeat()
    model = keras.Sequential(
        [
            keras.layers.Input((load.SIDE, load.SIDE, 3)),
            keras.layers.Conv2D(8, 3, strides=4, activation="relu"),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.SGD(0.01)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)

    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    compiled = tf.function(step, reduce_retracing=True)
    iterator = iter(batches)
    waited = trained = 0.0
    examples = 0
    for number in range(_WARM + steps):
        begin = time.perf_counter()
        batch = next(iterator, None)
        if batch is None:
            iterator = iter(batches)
            batch = next(iterator)
        came = time.perf_counter()
        float(compiled(*batch))
        if number >= _WARM:
            waited += came - begin
            trained += time.perf_counter() - came
            examples += len(batch[1])
    return {"share": waited / (waited + trained), "rate": examples / (waited + trained)}


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    if sys.argv[1:2] == ["--once"]:
        who, directory, steps = sys.argv[2:]
        print(json.dumps(train(who, Path(directory), int(steps))))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--photos", type=Path, required=True, help="a directory of photographs")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    total = int(load.SIZES["photos"] * arguments.scale)
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        load.build("photos", Path(scratch), total, arguments.photos)
        for _ in range(arguments.runs):
            for who in READERS:
                done = subprocess.run(
                    [sys.executable, __file__, "--once", who, scratch, str(arguments.steps)],
                    check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
                )  # fmt: skip
                found.setdefault(who, []).append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{total:,} photographs, {arguments.steps} steps of {load.BATCH['photos']}")
    for who, runs in found.items():
        waiting = [100 * run["share"] for run in runs]
        print(
            f"  {who:<6} {min(waiting):.0f} - {statistics.median(waiting):.0f} - "
            f"{max(waiting):.0f} % of the time is waiting; "
            f"{load.spread([run['rate'] for run in runs])} examples/s"
        )
    for who in READERS[1:]:
        pairs = zip(found["ours"], found[who], strict=True)
        print(f"  ours / {who:<6} {load.spread([a['rate'] / b['rate'] for a, b in pairs])}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
