"""Writes dummy data, a few rows or files of the real data, where the builder's test expects it.

Images, recordings and videos are reduced in size and keep their file format. Rows stay in the
file's own format, and values that look personal are scrambled.
"""

import contextlib
import csv
import io
import itertools
import json
import posixpath
import sqlite3
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as pafeather
import pyarrow.parquet as pq

from my_datasets import sources
from my_datasets.records import tfrecord
from my_datasets.scaffolding.formats import FOLDERS, files_of
from my_datasets.scaffolding.inspection import Inspection, scrambled
from my_datasets.sources import archives
from my_datasets.sources.databases import quoted, sqlite_uri
from my_datasets.sources.file import SourceFile
from my_datasets.sources.records import examples

# Longest side of images and frames in pixels; samples per recording; frames per video.
_SIDE, _SAMPLES, _FRAMES = 24, 800, 3
# Exceptions of decoders for invalid files, which include PyAV's errors.
_UNREADABLE = (OSError, ValueError, SyntaxError, RuntimeError)
# Codecs that every FFmpeg build can write, for containers that require them.
_CODECS = {".webm": "libvpx", ".mpg": "mpeg1video", ".mpeg": "mpeg1video"}
_CONTAINERS = {".m4v": "mp4", ".mkv": "matroska", ".mpg": "mpeg"}
_FRAMES_PER_SECOND = 25

# Rows to choose from, for each row of dummy data.
_EXAMINED = 50
# Number of table rows that correspond to one file per class.
_ROWS_FOR_A_FILE = 6
Rows = list[dict[str, object]]


def _image(data: bytes, ending: str) -> bytes:
    import PIL.Image

    image = PIL.Image.open(io.BytesIO(data))
    kind = image.format
    image.thumbnail((_SIDE, _SIDE))
    out = io.BytesIO()
    image.save(out, "JPEG" if ending in (".jpg", ".jpeg") and kind != "PNG" else kind)
    return out.getvalue()


def _recording(data: bytes, ending: str) -> bytes:
    import soundfile

    samples, rate = soundfile.read(io.BytesIO(data), frames=_SAMPLES)
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format={".ogg": "OGG"}.get(ending, ending[1:].upper()))
    return out.getvalue()


def _film(data: bytes, ending: str) -> bytes:
    import av

    out = io.BytesIO()
    with (
        av.open(io.BytesIO(data)) as film,
        av.open(out, "w", format=_CONTAINERS.get(ending, ending[1:])) as small,
    ):
        stream = small.add_stream(_CODECS.get(ending, "mpeg4"), rate=Fraction(_FRAMES_PER_SECOND))
        source = film.streams.video[0]
        scale = _SIDE / max(source.width, source.height)
        # Codecs require even dimensions.
        stream.width, stream.height = (
            max(2, round(side * scale / 2) * 2) for side in (source.width, source.height)
        )
        stream.pix_fmt = "yuv420p"
        for number, frame in enumerate(film.decode(source)):
            if number == _FRAMES:
                break
            made = frame.reformat(stream.width, stream.height, "yuv420p")
            made.pts, made.time_base = number, Fraction(1, _FRAMES_PER_SECOND)
            small.mux(stream.encode(made))
        small.mux(stream.encode(None))
    return out.getvalue()


_REDUCED = {"image_folder": _image, "audio_folder": _recording, "video_folder": _film}


def _contents(where: str, found: Inspection, rows: int) -> Iterator[tuple[SourceFile, bytes]]:
    """Yields files of the real data, and the dummy content of each; see `write`."""
    if found.kind in FOLDERS:
        yield from _some_files(where, found, max(1, rows // _ROWS_FOR_A_FILE))
        return
    of_kind = files_of(where, found.kind)
    if found.kind == "arrays":
        few = {name: found.sample.column(name).to_pylist() for name in found.values}
        numbers = _varied(few, found.sample.num_rows, rows)
        for file in of_kind:
            yield file, _arrays(file, numbers)
        return
    first = of_kind[0]
    data = _TABLES[found.kind](first, found, rows)
    if first.codec is not None:
        out = pa.BufferOutputStream()
        with pa.CompressedOutputStream(out, first.codec) as packed:
            packed.write(data)
        data = out.getvalue().to_pybytes()
    yield first, data


def _some_files(where: str, found: Inspection, each: int) -> Iterator[tuple[SourceFile, bytes]]:
    """Yields a few decodable files of each class, reduced in size."""
    chosen: Counter[str] = Counter()
    convert = found.source.generate.convert  # type: ignore[attr-defined]
    for file in files_of(where, found.kind):
        label = posixpath.dirname(file.name)
        if chosen[label] == (each if label else 5 * each):
            continue
        with contextlib.suppress(*_UNREADABLE), file.open() as stream:
            data = _REDUCED[found.kind](stream.read(), posixpath.splitext(file.location)[1].lower())
            # The source rejects another sample rate or class.
            if not isinstance(convert(data), Exception):
                yield file, data
                chosen[label] += 1


def _arrays(file: SourceFile, numbers: Sequence[int]) -> bytes:
    out = io.BytesIO()
    loaded = np.load(file.open(), allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        np.save(out, loaded[list(numbers)])
    else:
        np.savez(out, **{name: loaded[name][list(numbers)] for name in loaded.files})
    return out.getvalue()


def _delimited(file: SourceFile, found: Inspection, rows: int) -> bytes:
    """Returns rows as they are written in the file, not as they are parsed."""
    options = {**found.options, "types": {c.name: pa.string() for c in found.columns}}
    raw = getattr(sources, found.kind)(file.location, **options).head(_EXAMINED * rows)
    out = io.StringIO()
    is_quoted = options.get("quote", '"') is not None
    writer = csv.writer(
        out,
        delimiter="\t" if found.kind == "tsv" else ",",
        quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
        quotechar='"' if is_quoted else None,
        lineterminator="\n",
    )
    if "columns" not in options:
        writer.writerow(raw.column_names)
    for row in _chosen(raw.to_pylist(), found, rows):
        writer.writerow(["" if value is None else value for value in row.values()])
    return out.getvalue().encode()


def _text_lines(file: SourceFile, found: Inspection, rows: int) -> bytes:
    texts = sources.text_lines(file.location).head(rows).column(0).to_pylist()
    personal = any(column.personal for column in found.columns)
    return "".join(f"{scrambled(text) if personal else text}\n" for text in texts).encode()


def _json_lines(file: SourceFile, found: Inspection, rows: int) -> bytes:
    with file.stream() as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig")
        lines = (json.loads(line) for line in text if line.strip())
        some = list(itertools.islice(lines, _EXAMINED * rows))
    return "".join(json.dumps(row) + "\n" for row in _chosen(some, found, rows)).encode()


def _parquet(file: SourceFile, found: Inspection, rows: int) -> bytes:
    with file.open() as stream:
        batch = next(pq.ParquetFile(stream).iter_batches(_EXAMINED * rows))
    sample = pa.Table.from_pylist(_chosen(batch.to_pylist(), found, rows), batch.schema)
    out = io.BytesIO()
    pq.write_table(sample, out)
    return out.getvalue()


def _feather(file: SourceFile, found: Inspection, rows: int) -> bytes:
    with file.open() as stream:
        batch = pa.ipc.open_file(stream).get_batch(0).slice(0, _EXAMINED * rows)
    sample = pa.Table.from_pylist(_chosen(batch.to_pylist(), found, rows), batch.schema)
    out = io.BytesIO()
    pafeather.write_feather(sample, out)
    return out.getvalue()


def _tfrecords(file: SourceFile, found: Inspection, rows: int) -> bytes:
    some = [example for _, example in itertools.islice(examples(file), _EXAMINED * rows)]
    few = {name: [str(e.features.feature[name]) for e in some] for name in found.values}
    out = []
    for number in _varied(few, len(some), rows):
        example = some[number]
        for name in _personal(found) & set(example.features.feature):
            values = example.features.feature[name].bytes_list.value
            texts = [value.decode(errors="replace") for value in values]
            values[:] = [str(scrambled(text)).encode() for text in texts]
        out.append(example.SerializeToString(deterministic=True))
    records = pa.array(out, pa.large_binary())
    return b"".join(tfrecord.framed([records], len(out)).to_pylist())


def _sql(file: SourceFile, found: Inspection, rows: int) -> bytes:
    """Returns a database with only this table, which may be a view in the real one."""
    table = found.table
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "database"
        with (
            contextlib.closing(sqlite3.connect(sqlite_uri(file.location), uri=True)) as real,
            contextlib.closing(sqlite3.connect(path)) as made,
        ):
            real.row_factory = sqlite3.Row
            read = real.execute(f"SELECT * FROM {quoted(table)} LIMIT ?", (_EXAMINED * rows,))  # noqa: S608
            some = _chosen([dict(row) for row in read], found, rows)
            columns = []
            keys = []
            for info in real.execute("SELECT * FROM pragma_table_info(?)", (table,)):
                columns.append(f"{quoted(info['name'])} {info['type']}")
                keys += [quoted(info["name"])] if info["pk"] else []
            if keys:
                columns.append(f"PRIMARY KEY ({', '.join(keys)})")
            made.execute(f"CREATE TABLE {quoted(table)} ({', '.join(columns)})")
            marks = ", ".join("?" for _ in some[0])
            made.executemany(
                f"INSERT INTO {quoted(table)} VALUES ({marks})",  # noqa: S608
                [tuple(row.values()) for row in some],
            )
            made.commit()
        return path.read_bytes()


_TABLES = {
    "csv": _delimited, "tsv": _delimited, "text_lines": _text_lines, "json_lines": _json_lines,
    "parquet": _parquet, "feather": _feather, "tfrecords": _tfrecords, "sql": _sql,
}  # fmt: skip


def _personal(found: Inspection) -> set[str]:
    return {column.name for column in found.columns if column.personal}


def _chosen(given: Rows, found: Inspection, rows: int) -> Rows:
    """Returns some rows, with values that look personal scrambled."""
    few = [name for name in found.values if given and name in given[0]]
    numbers = _varied({name: [row[name] for row in given] for name in few}, len(given), rows)
    personal = _personal(found)
    return [
        {name: scrambled(v) if name in personal else v for name, v in given[number].items()}
        for number in numbers
    ]


def _varied(few: Mapping[str, Sequence[object]], count: int, rows: int) -> list[int]:
    """Returns row numbers that cover every value of the `few` columns, then the first rows."""
    seen: set[tuple[str, str]] = set()
    chosen = []
    for number in range(count):
        new = {(name, str(values[number])) for name, values in few.items()} - seen
        if new:
            seen |= new
            chosen.append(number)
    used = set(chosen)
    rest = (number for number in range(count) if number not in used)
    numbers = [*chosen, *itertools.islice(rest, max(0, rows - len(chosen)))]
    return sorted(numbers[: max(rows, len(chosen))])


def write(where: str, found: Inspection, rows: int, target: Path) -> None:
    """Writes dummy data to a directory, under the name of the real data.

    `rows` is the number of rows of a table; of files, there are proportionally fewer per class.
    """
    name = stem(where)
    archive, _ = archives.split(where)
    made = list(_contents(where, found, rows))
    if archive and not is_pattern(archive):
        inside = f"{archives.SEPARATOR}/"
        named = [(file.location.partition(inside)[2], data) for file, data in made]
        target.mkdir(parents=True, exist_ok=True)
        _pack(named, target / name)
        return
    for file, data in made:
        if is_pattern(name):
            path = target / posixpath.basename(file.location)
        else:
            path = target / name / file.name if file.name else target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def stem(where: str) -> str:
    """Returns the name of a file without its directory and what follows `::`."""
    return posixpath.basename(where.partition("::")[0].rstrip("/"))


def is_pattern(path: str) -> bool:
    """Returns whether a path is a glob pattern."""
    return any(mark in path for mark in "*?[")


def _pack(named: list[tuple[str, bytes]], path: Path) -> None:
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path, "w") as zipped:
            for name, data in named:
                zipped.writestr(name, data)
        return
    modes = {".gz": "w:gz", ".tgz": "w:gz", ".bz2": "w:bz2", ".tbz2": "w:bz2",
             ".xz": "w:xz", ".txz": "w:xz"}  # fmt: skip
    with tarfile.open(path, modes.get(path.suffix.lower(), "w")) as tar:  # type: ignore[call-overload]
        for name, data in named:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
