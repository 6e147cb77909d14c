"""Writes dummy data, a few rows or files of the real data, where the builder's test expects it."""

import io
import posixpath
import tarfile
import zipfile
from pathlib import Path

from my_datasets.scaffolding.dummy_writer import imitations
from my_datasets.scaffolding.inspection import Inspection
from my_datasets.sources.files import archives


def write(where: str, found: Inspection, rows: int, target: Path) -> None:
    """Writes dummy data.

    Args:
      where: The real data.
      found: The inspected data.
      rows: The number of rows of a table; for files, proportionally fewer per class.
      target: The directory to write to, under the name of the real data.
    """
    name = stem(where)
    archive, _ = archives.split(where)
    made = list(imitations(where, found, rows))
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
    """Writes an archive of the type given by its file extension."""
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
