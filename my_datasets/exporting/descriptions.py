"""What lies beside exported files: a card, and a description for Croissant."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from my_datasets.exporting.croissant import PARQUET, as_text, croissant
from my_datasets.exporting.dataset_card import readme
from my_datasets.exporting.parquet import ExportedFile
from my_datasets.exporting.version_summary import About, SummaryFile
from my_datasets.input_pipeline.read.prepared import Prepared
from my_datasets.metadata.features import leaves_of


def describe(prepared: Prepared, directory: Path, files: Sequence[ExportedFile]) -> None:
    """Writes `README.md` and `croissant.json` beside exported files.

    Args:
      prepared: The version they were made of.
      directory: Where they are.
      files: The files.
    """
    about = About.read(prepared.path)
    bytes_of: dict[str, int] = {}
    for one in files:
        bytes_of[one.split] = bytes_of.get(one.split, 0) + one.bytes
    noted = pq.read_schema(directory / files[0].name).metadata[b"huggingface"].decode()
    (directory / "README.md").write_text(readme(about, noted, bytes_of), "utf-8")
    listed = [SummaryFile(one.name, one.name, one.bytes, one.sha256, PARQUET) for one in files]
    made = croissant(
        replace(about, files=listed), leaves_of(prepared.schema.tree), includes="data/*.parquet",
        records="All examples.", has_splits=True,
    )  # fmt: skip
    (directory / "croissant.json").write_text(as_text(made), "utf-8")
