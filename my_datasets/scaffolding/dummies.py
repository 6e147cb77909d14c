"""Dummy data: a few rows or files of the real data, small, with what looks personal scrambled."""

import contextlib
import csv
import io
import itertools
import json
import posixpath
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as pafeather
import pyarrow.parquet as pq

from my_datasets import sources
from my_datasets.errors import SourceError, explain
from my_datasets.scaffolding.inspection import FOLDERS, Inspection, folder_files
from my_datasets.scaffolding.personal import scrambled
from my_datasets.sources import archives
from my_datasets.sources.files import File
from my_datasets.sources.listing import files

# Rows of a table for each file of a class; the longest side of images in pixels; samples of
# recordings.
_ROWS_FOR_A_FILE, _SIDE, _SAMPLES = 6, 24, 800
# What decoders raise for files that they cannot make sense of.
_UNREADABLE = (OSError, ValueError, SyntaxError, RuntimeError)


def write(where: str, found: Inspection, rows: int, target: Path) -> None:
    """Writes dummy data.

    Args:
      where: The real data.
      found: What they are.
      rows: How many rows of a table there are to be; of files a part of that in each class.
      target: The directory to write into, under the name of the real data.

    Raises:
      SourceError: They cannot be imitated: tables in an archive, a pattern of directories.
    """
    name = stem(where)
    if found.kind in FOLDERS:
        _folder(where, found, max(1, rows // _ROWS_FOR_A_FILE), target / name)
        return
    first = files(where)[0]
    if "::" in first.location or first.codec is not None:
        raise SourceError(
            explain(
                f"Tables inside of archives, or compressed, cannot be imitated: {first}",
                mend="unpack them, and give the file itself",
            )
        )
    if is_pattern(name):
        path = target / posixpath.basename(first.location)
    else:
        path = target / name / first.name if first.name else target / name
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


def stem(where: str) -> str:
    """Returns the name of a file without its directory and what stands behind `::`."""
    return posixpath.basename(where.partition("::")[0].rstrip("/"))


def is_pattern(path: str) -> bool:
    """Returns whether a path stands for several."""
    return any(mark in path for mark in "*?[")


def _folder(where: str, found: Inspection, each: int, path: Path) -> None:
    """Writes some files of each class, made small; into an archive of the real one's kind."""
    archive, _ = archives.split(where)
    named = [
        (file.location.partition(f"{archives.SEPARATOR}/")[2] if archive else file.name, data)
        for file, data in _some_files(where, found, each)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    if not archive:
        for name, data in named:
            target = path / name if name else path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    elif archive.lower().endswith(".zip"):
        with zipfile.ZipFile(path, "w") as zipped:
            for name, data in named:
                zipped.writestr(name, data)
    else:
        ending = posixpath.splitext(archive.lower())[1]
        modes = {".gz": "w:gz", ".tgz": "w:gz", ".bz2": "w:bz2", ".tbz2": "w:bz2",
                 ".xz": "w:xz", ".txz": "w:xz"}  # fmt: skip
        with tarfile.open(path, modes.get(ending, "w")) as tar:  # type: ignore[call-overload]
            for name, data in named:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


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
    taken = set(chosen)
    rest = (number for number in range(len(given)) if number not in taken)
    numbers = [*chosen, *itertools.islice(rest, max(0, rows - len(chosen)))]
    return [given[number] for number in sorted(numbers[: max(rows, len(chosen))])]


def _some_files(where: str, found: Inspection, each: int) -> Iterator[tuple[File, bytes]]:
    """Yields files that can be decoded, a few of each class, made small."""
    shrink = _small_image if found.kind == "image_folder" else _short_recording
    chosen: Counter[str] = Counter()
    for file in folder_files(where, found.kind):
        label = posixpath.dirname(file.name)
        if chosen[label] == (each if label else 5 * each):
            continue
        with contextlib.suppress(*_UNREADABLE), file.open() as stream:
            yield file, shrink(stream.read(), posixpath.splitext(file.location)[1].lower())
            chosen[label] += 1


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
