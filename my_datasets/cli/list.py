"""`my-datasets list`: which datasets there are, and which versions are prepared."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import rich_click as click

from my_datasets.builders.registry import packaged
from my_datasets.cli.output import console, data_dir_option, json_option, print_json, reading_dir
from my_datasets.core import layout


@dataclass(frozen=True)
class Row:
    """One dataset: from this package's code, from prepared data, or both.

    Attributes:
      name: The dataset's name.
      version: The version that the code builds; None if this package has no builder of it.
      prepared: The prepared versions, as `[config/]version`.
      summary: One line that says what it is; empty if unknown.
    """

    name: str
    version: str | None
    prepared: list[str]
    summary: str


@click.command("list")
@data_dir_option
@json_option
def command(data_dir: str | None, as_json: bool) -> None:
    """List the datasets of this package and those prepared on this machine.

    No builder is imported. Example: my-datasets list --json
    """
    directory = reading_dir(data_dir)
    rows = list(_rows(directory))
    if as_json:
        print_json({"data_dir": str(directory), "datasets": [asdict(row) for row in rows]})
        return
    from rich.table import Table

    table = Table("dataset", "version", "prepared", "what it is", box=None, pad_edge=False)
    for row in rows:
        prepared = ", ".join(row.prepared) or "-"
        table.add_row(row.name, row.version or "-", prepared, row.summary)
    console().print(table)
    click.echo(f"Prepared data: {directory}")


def _rows(data_dir: Path) -> Iterator[Row]:
    prepared: dict[str, list[str]] = {}
    for found in layout.prepared_versions(data_dir):
        config = f"{found.config}/" if found.config else ""
        prepared.setdefault(found.name, []).append(f"{config}{found.version}")
    for name in sorted({*packaged.datasets, *prepared}):
        dataset = packaged.datasets.get(name)
        version = dataset.version if dataset else None
        yield Row(
            name=name,
            version=str(version) if version else None,
            prepared=prepared.get(name, []),
            summary=dataset.summary if dataset else "",
        )
