"""The readers that have environments of their own, and how every reader is measured.

`load.py` runs this file with a peer's Python, which has neither this package nor TensorFlow:

    PYTHON benchmarks/peers.py --prepare PEER WORKLOAD DIRECTORY
    PYTHON benchmarks/peers.py --once PEER WORKLOAD DIRECTORY SECONDS
"""

import contextlib
import importlib
import io
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 224
BATCH = {"table": 256, "texts": 256, "images": 256, "photos": 64}
CORES = os.cpu_count() or 1


# --- Measuring ----------------------------------------------------------------------------------


def measure(batches: Iterable[Any], seconds: float, fill: int = 0) -> None:
    """Goes through batches, and prints how many examples came in a second.

    Args:
      batches: Batches, without an end or for one epoch.
      seconds: For how long, after the first second.
      fill: Instead of the first second, at most that many batches or an epoch are passed over.
    """
    warm = 1.0
    source = iter(batches)
    begin = time.perf_counter()
    if fill:
        for _ in range(fill):
            if next(source, None) is None:
                source = iter(batches)
                break
        begin = time.perf_counter() - warm
    count, start = 0, None
    while True:
        batch = next(source, None)
        if batch is None:
            source = iter(batches)
            batch = next(source)
        now = time.perf_counter()
        if start is None:
            start = now if now - begin >= warm else None
            continue
        count += size_of(batch)
        if now - start >= seconds:
            break
    peak = Path("/proc/self/status").read_text("ascii").split("VmHWM:")[1].split()[0]
    print(json.dumps({"rate": count / (now - start), "peak_kb": int(peak)}), flush=True)


def size_of(batch: Any) -> int:
    """Returns how many examples a batch has: a dict, an image and a label, or a list."""
    if isinstance(batch, dict):
        return len(batch["label"])
    return len(batch[1]) if len(batch) == 2 else len(batch)


# --- The data -----------------------------------------------------------------------------------


def examples(directory: Path) -> Iterator[dict[str, Any]]:
    """Yields the examples of the Parquet file that `load.py` wrote."""
    parquet = importlib.import_module("pyarrow.parquet")
    with parquet.ParquetFile(directory / "parquet/all.parquet") as file:
        for batch in file.iter_batches(1_000):
            yield from batch.to_pylist()


def write_array_records(directory: Path) -> None:
    """Writes ArrayRecord files of msgpack, a record to a group, as Grain wants them."""
    msgpack = importlib.import_module("msgpack")
    record = importlib.import_module("array_record.python.array_record_module")
    (directory / "grain").mkdir()
    with contextlib.ExitStack() as stack:
        writers = []
        for number in range(8):
            path = str(directory / f"grain/{number}.array_record")
            writers.append(record.ArrayRecordWriter(path, "group_size:1"))
            stack.callback(writers[-1].close)
        for example, writer in zip(examples(directory), itertools.cycle(writers), strict=False):
            writer.write(msgpack.packb(example, use_single_float=True))


def write_tars(directory: Path) -> None:
    """Writes tar files, at least two for each worker."""
    webdataset = importlib.import_module("webdataset")
    place = directory / "webdataset"
    place.mkdir()
    with contextlib.ExitStack() as stack:
        tars = [
            stack.enter_context(webdataset.TarWriter(str(place / f"{number:04}.tar")))
            for number in range(max(8, 2 * CORES))
        ]
        for number, example in enumerate(examples(directory)):
            tars[number % len(tars)].write(
                {"__key__": f"{number:06}", "jpg": example["image"], "cls": example["label"]}
            )


def write_mds(directory: Path) -> None:
    """Writes shards of MosaicML Streaming."""
    columns = {"image": "bytes", "label": "int"}
    streaming = importlib.import_module("streaming")
    with streaming.MDSWriter(out=str(directory / "mosaic"), columns=columns) as out:
        for example in examples(directory):
            out.write(example)


def write_chunks(directory: Path) -> None:
    """Writes LitData's chunks, of the files' bytes."""
    importlib.import_module("litdata").optimize(
        fn=partial(_all_examples, directory), inputs=[0], output_dir=str(directory / "litdata"),
        chunk_bytes="64MB", num_workers=1,
    )  # fmt: skip


def _all_examples(directory: Path, _: int) -> Iterator[dict[str, Any]]:
    yield from examples(directory)


WRITERS: dict[str, Callable[[Path], None]] = {
    "grain": write_array_records,
    "webdataset": write_tars,
    "mosaic": write_mds,
    "litdata": write_chunks,
}


# --- The readers --------------------------------------------------------------------------------


def photo(data: bytes) -> Any:
    """Returns a photograph, decoded and resized by Pillow, between 0 and 1."""
    import PIL.Image

    image = PIL.Image.open(io.BytesIO(data)).convert("RGB")
    pixels = np.asarray(image.resize((SIDE, SIDE), PIL.Image.Resampling.BILINEAR), np.float32)
    return pixels / np.float32(255)


def small_image(data: bytes) -> Any:
    """Returns an image of one channel."""
    import PIL.Image

    return np.asarray(PIL.Image.open(io.BytesIO(data)))[..., None]


DECODERS = {"photos": photo, "images": small_image}


def hugging_face(kind: str, directory: Path) -> Iterable[Any]:
    """Returns Hugging Face's batches, as NumPy arrays, from Parquet files."""
    data = importlib.import_module("datasets").load_dataset(
        "parquet", data_files=str(directory / "parquet/*.parquet"), split="train",
        cache_dir=str(directory / "hf"),
    ).shuffle(seed=7)  # fmt: skip
    decode = DECODERS.get(kind)
    if decode:

        def changed(rows: Any) -> Any:
            images = np.stack([decode(one) for one in rows["image"]])
            return {"image": images, "label": np.array(rows["label"])}

        data = data.with_transform(changed)
    else:
        data = data.with_format("numpy")

    class Epochs:
        def __iter__(self) -> Iterator[Any]:
            yield from data.iter(BATCH[kind])

    return Epochs()


def grain(kind: str, directory: Path) -> Iterable[Any]:
    """Returns Grain's batches, made whole in threads: with two cores, processes are no faster."""
    library = importlib.import_module("grain")
    unpacked = importlib.import_module("msgpack").unpackb
    decode = DECODERS.get(kind)

    def parsed(record: bytes) -> dict[str, Any]:
        example: dict[str, Any] = unpacked(record)
        label = np.int64(example.pop("label"))
        if decode:
            return {"image": decode(example["image"]), "label": label}
        if kind == "table":
            example = {name: np.float32(value) for name, value in example.items()}
        return {**example, "label": label}

    source = library.sources.ArrayRecordDataSource(
        [str(path) for path in sorted((directory / "grain").iterdir())]
    )
    # Its buffer of 500 elements would be one of 500 batches here.
    options = library.ReadOptions(num_threads=CORES, prefetch_buffer_size=4 * CORES)
    data = library.MapDataset.source(source).shuffle(seed=7).repeat()
    batches: Iterable[Any] = data.map(parsed).batch(BATCH[kind]).to_iter_dataset(options)
    return batches


def webdataset(kind: str, directory: Path) -> Iterable[Any]:
    """Returns a `DataLoader` over tar files, with a process for each core."""
    tars = [str(path) for path in sorted((directory / "webdataset").iterdir())]
    data = (
        importlib.import_module("webdataset")
        .WebDataset(tars, shardshuffle=len(tars))
        .repeat()
        .shuffle(1_000)
        .to_tuple("jpg", "cls")
        .map_tuple(photo, int)
    )
    return loader(data, kind)


def mosaic(kind: str, directory: Path) -> Iterable[Any]:
    """Returns a `DataLoader` over MosaicML's shards, with a process for each core."""
    streaming: Any = importlib.import_module("streaming")

    class Photos(streaming.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Any:
            example = super().__getitem__(at)
            return photo(example["image"]), example["label"]

    local = str(directory / "mosaic")
    return loader(Photos(local=local, shuffle=True, batch_size=BATCH[kind]), kind)


def litdata(kind: str, directory: Path) -> Iterable[Any]:
    """Returns LitData's own loader over its chunks, with a process for each core."""
    library = importlib.import_module("litdata")
    data = library.StreamingDataset(str(directory / "litdata"), shuffle=True, transform=as_pair)
    return loader(data, kind, library.StreamingDataLoader)


def as_pair(example: dict[str, Any]) -> Any:
    """Returns a decoded photograph and its label."""
    return photo(example["image"]), example["label"]


def loader(data: Any, kind: str, made_by: Any = None) -> Iterable[Any]:
    """Returns a `DataLoader` whose processes live on from epoch to epoch."""
    make = made_by or importlib.import_module("torch.utils.data").DataLoader
    batches: Iterable[Any] = make(
        data, batch_size=BATCH[kind], num_workers=CORES, persistent_workers=True
    )
    return batches


READERS: dict[str, Callable[[str, Path], Iterable[Any]]] = {
    "hf": hugging_face,
    "grain": grain,
    "webdataset": webdataset,
    "mosaic": mosaic,
    "litdata": litdata,
}


def main() -> None:
    """Writes what a peer reads, or measures it."""
    what, peer, kind, directory, *seconds = sys.argv[1:]
    if what == "--prepare":
        WRITERS[peer](Path(directory))
    else:
        measure(READERS[peer](kind, Path(directory)), float(seconds[0]))


if __name__ == "__main__":
    main()
