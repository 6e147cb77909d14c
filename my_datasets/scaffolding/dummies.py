"""Dummy data: a few rows or files of the real data, small, with what looks personal scrambled."""

import csv
import io
import itertools
import json
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as pafeather
import pyarrow.parquet as pq

from my_datasets import sources
from my_datasets.errors import SourceError, explain
from my_datasets.scaffolding.inspection import Inspection
from my_datasets.scaffolding.personal import scrambled
from my_datasets.sources.files import File
from my_datasets.sources.listing import files

# Files of each class; the longest side of images in pixels; samples of recordings.
_FILES, _SIDE, _SAMPLES = 2, 24, 800


def write(where: str, found: Inspection, rows: int, target: Path) -> None:
    """Writes dummy data.

    Args:
      where: The real data.
      found: What they are.
      rows: How many rows of a table there are to be.
      target: The file or the directory to write, called as the real one.

    Raises:
      SourceError: They cannot be imitated: an archive of tables.
    """
    if found.kind in ("image_folder", "audio_folder"):
        shrink = _small_image if found.kind == "image_folder" else _short_recording
        for name, data in _some_files(where, found):
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(shrink(data, posixpath.splitext(name)[1].lower()))
        return
    first = files(where)[0]
    if "::" in first.location or first.codec is not None:
        raise SourceError(
            explain(
                f"Tables inside of archives, or compressed, cannot be imitated: {first}",
                mend="unpack them, and give the file itself",
            )
        )
    path = target / first.name if first.name else target
    path.parent.mkdir(parents=True, exist_ok=True)
    if found.kind in ("csv", "tsv"):
        path.write_text(_delimited(first, found, rows), "utf-8")
    elif found.kind == "text_lines":
        texts = found.sample.column(0).slice(0, rows).to_pylist()
        path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    elif found.kind == "json_lines":
        path.write_text(_json_lines(first, found, rows), "utf-8")
    else:
        _columnar(first, found, rows, path)


def _personal(found: Inspection) -> set[str]:
    return {column.name for column in found.columns if column.personal}


def _delimited(file: File, found: Inspection, rows: int) -> str:
    """Returns rows as they are written in the file: not as their types are read."""
    options = {**found.options, "types": {c.name: pa.string() for c in found.columns}}
    if found.options.get("columns") is None:
        options.pop("columns", None)
    raw = getattr(sources, found.kind)(file.location, **options).head(_enough(rows))
    out = io.StringIO()
    is_tsv = found.kind == "tsv"
    is_quoted = options.get("quote", '"') is not None
    writer = csv.writer(
        out,
        delimiter="\t" if is_tsv else ",",
        quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
        quotechar='"' if is_quoted else None,
        lineterminator="\n",
    )
    if "columns" not in options:
        writer.writerow(raw.column_names)
    personal = _personal(found)
    for row in _varied(raw.to_pylist(), found, rows):
        values = [scrambled(v) if name in personal else v for name, v in row.items()]
        writer.writerow(["" if value is None else value for value in values])
    return out.getvalue()


def _json_lines(file: File, found: Inspection, rows: int) -> str:
    with file.stream() as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig")
        lines = (json.loads(line) for line in text if line.strip())
        some = list(itertools.islice(lines, _enough(rows)))
    personal = _personal(found)
    return "".join(
        json.dumps({k: scrambled(v) if k in personal else v for k, v in row.items()}) + "\n"
        for row in _varied(some, found, rows)
    )


def _columnar(file: File, found: Inspection, rows: int, path: Path) -> None:
    """Writes rows in the types of the file itself."""
    with file.open() as stream:
        if found.kind == "parquet":
            table = next(pq.ParquetFile(stream).iter_batches(_enough(rows)))
        else:
            table = pa.ipc.open_file(stream).get_batch(0).slice(0, _enough(rows))
    personal = _personal(found)
    some = _varied(table.to_pylist(), found, rows)
    made = [{k: scrambled(v) if k in personal else v for k, v in row.items()} for row in some]
    sample = pa.Table.from_pylist(made, table.schema)
    if found.kind == "parquet":
        pq.write_table(sample, path)
    else:
        pafeather.write_feather(sample, path)


def _enough(rows: int) -> int:
    return 50 * rows


def _varied(given: Sequence[dict[str, Any]], found: Inspection, rows: int) -> list[dict[str, Any]]:
    """Returns some rows: with each value of columns that have few, then the first ones."""
    few = [name for name in found.values if given and name in given[0]]
    seen: set[tuple[str, str]] = set()
    chosen = []
    for number, row in enumerate(given):
        new = {(name, str(row[name])) for name in few} - seen
        if new:
            seen |= new
            chosen.append(number)
    rest = (number for number in range(len(given)) if number not in set(chosen))
    numbers = [*chosen, *itertools.islice(rest, max(0, rows - len(chosen)))]
    return [given[number] for number in sorted(numbers[: max(rows, len(chosen))])]


def _some_files(where: str, found: Inspection) -> Iterator[tuple[str, bytes]]:
    """Yields files that can be read, a few of each class, by their names in the folder."""
    labels: dict[str, int] = {}
    by_name = {file.name or posixpath.basename(file.location): file for file in files(where)}
    for keys, batch in found.source:
        if not isinstance(batch, pa.RecordBatch):
            continue
        for name in keys.to_pylist():
            label = posixpath.dirname(name)
            labels[label] = labels.get(label, 0) + 1
            if labels[label] <= (_FILES if label else 5 * _FILES):
                with by_name[name].open() as stream:
                    yield name, stream.read()


def _small_image(data: bytes, ending: str) -> bytes:
    import PIL.Image

    image = PIL.Image.open(io.BytesIO(data))
    kind = image.format
    image.thumbnail((_SIDE, _SIDE))
    out = io.BytesIO()
    image.save(out, "JPEG" if ending in (".jpg", ".jpeg") and kind != "PNG" else kind)
    return out.getvalue()


def _short_recording(data: bytes, ending: str) -> bytes:
    import soundfile

    samples, rate = soundfile.read(io.BytesIO(data), frames=_SAMPLES)
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format={".ogg": "OGG"}.get(ending, ending[1:].upper()))
    return out.getvalue()
