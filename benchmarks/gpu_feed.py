"""The share of training on a GPU that is waiting for data, without TensorFlow in the process.

A convolutional network in PyTorch trains on photographs that this package decodes, `torch_loader`
with threads and with processes; and on those of a `DataLoader` with Pillow. What counts is the time
per step in which the GPU waits, its utilisation as the driver tells it, and the examples per
second; each reader in turn, several times. Without a CUDA GPU it says so, and measures nothing.

    python benchmarks/gpu_feed.py --photos DIR [--runs 3] [--steps 100] [--json FILE]
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import load
import torch

_WARM = 10


def network() -> Any:
    """Returns a network that is small for a GPU: it takes little to starve it."""
    layers = torch.nn
    return layers.Sequential(
        layers.Conv2d(3, 64, 7, 2, 3), layers.ReLU(), layers.MaxPool2d(2),
        layers.Conv2d(64, 128, 3, 2, 1), layers.ReLU(), layers.Conv2d(128, 256, 3, 2, 1),
        layers.ReLU(), layers.AdaptiveAvgPool2d(1), layers.Flatten(), layers.Linear(256, 10),
    )  # fmt: skip


def reader(who: str, directory: Path) -> Any:
    """Returns batches for an epoch after the other."""
    if who == "pillow":
        return load.reader("torch", "photos", directory)
    import my_datasets

    workers = (os.cpu_count() or 1) if who == "ours, processes" else 0
    return my_datasets.torch_loader(
        "benchmark", data_dir=directory, batch_size=load.BATCH["photos"], epochs=None,
        image_size=(load.SIDE, load.SIDE), image_dtype="float32", workers=workers,
    )  # fmt: skip


def train(who: str, directory: Path, steps: int) -> dict[str, float]:
    """Trains for some steps, and returns what the GPU waited for."""
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loss = torch.nn.CrossEntropyLoss()
    batches = reader(who, directory)
    iterator = iter(batches)
    waited, utilisation = 0.0, []
    begin = 0.0
    for number in range(_WARM + steps):
        if number == _WARM:
            torch.cuda.synchronize()
            begin, waited = time.perf_counter(), 0.0
        asked = time.perf_counter()
        batch = next(iterator, None)
        if batch is None:
            iterator = iter(batches)
            batch = next(iterator)
        images, labels = batch
        waited += time.perf_counter() - asked
        images = images.cuda(non_blocking=True)
        optimizer.zero_grad()
        loss(model(images.permute(0, 3, 1, 2)), labels.cuda()).backward()
        optimizer.step()
        torch.cuda.synchronize()
        if number >= _WARM and number % 10 == 0:
            utilisation.append(torch.cuda.utilization())
    elapsed = time.perf_counter() - begin
    return {
        "wait_ms": 1000 * waited / steps,
        "share": waited / elapsed,
        "utilisation": statistics.mean(utilisation),
        "rate": steps * load.BATCH["photos"] / elapsed,
    }


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--photos", type=Path, required=True, help="a directory of photographs")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("There is no CUDA GPU here: nothing was measured.")
        return
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        load.build("photos", directory, load.SIZES["photos"], arguments.photos)
        load.prepared_for_others("photos", directory)
        for _ in range(arguments.runs):
            for who in ("ours", "ours, processes", "pillow"):
                found.setdefault(who, []).append(train(who, directory, arguments.steps))
    print(f"{torch.cuda.get_device_name()}, {os.cpu_count()} cores, {arguments.steps} steps")
    for who, runs in found.items():
        print(
            f"  {who:<15} waits {load.spread([run['wait_ms'] for run in runs])} ms a step; GPU at "
            f"{load.spread([run['utilisation'] for run in runs])} %; "
            f"{load.spread([run['rate'] for run in runs])} examples/s"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
