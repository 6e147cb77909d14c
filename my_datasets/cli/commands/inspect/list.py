"""`my-datasets list`: which datasets there are, and which versions are prepared."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import rich_click as click

from my_datasets.cli.output import (
    PathOrAddress,
    console,
    data_dir_option_of,
    echo,
    json_option,
    print_json,
    reading_dir,
)
from my_datasets.metadata import layout
from my_datasets.resolving.available_versions import DeclaredVersions
from my_datasets.resolving.registry import packaged


@dataclass(frozen=True)
class Row:
    """One dataset: from this package's code, from prepared data, or both.

    Attributes:
      name: The dataset's name.
      version: The version of the code; None if this package has no builder of it.
      prepared: The prepared versions, as `[config/]version`.
      summary: One line that says what it is; empty if unknown.
      buildable: The versions that the code builds, that one first.
      blocked: Why prepared versions must not be used, of those that must not be.
    """

    name: str
    version: str | None
    prepared: list[str]
    summary: str
    buildable: list[str] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)


@click.command("list")
@data_dir_option_of(PathOrAddress("gs"))
@json_option
def command(data_dir: str | None, as_json: bool) -> None:
    """List the datasets of this package and those prepared on this machine.

    Of each, the versions that its code builds, and all that are prepared. No builder is imported.

    Example: my-datasets list --json
    """
    directory = reading_dir(data_dir)
    rows = list(_rows(directory))
    if as_json:
        print_json({"data_dir": str(directory), "datasets": [asdict(row) for row in rows]})
        return
    from rich.table import Table

    table = Table("dataset", "versions", "prepared", "what it is", box=None, pad_edge=False)
    for row in rows:
        prepared = [f"{one} (blocked)" if one in row.blocked else one for one in row.prepared]
        table.add_row(
            row.name, ", ".join(row.buildable) or "-", ", ".join(prepared) or "-", row.summary
        )
    console().print(table)
    for row in rows:
        for version, reason in row.blocked.items():
            echo(f"{row.name}:{version} must not be used: {reason}")
    echo(f"Prepared data: {directory}")


def _rows(data_dir: Path) -> Iterator[Row]:
    prepared: dict[str, dict[str, layout.PreparedVersion]] = {}
    for found in layout.prepared_versions(data_dir):
        config = f"{found.config}/" if found.config else ""
        prepared.setdefault(found.name, {})[f"{config}{found.version}"] = found
    for name in sorted({*packaged.datasets, *prepared}):
        dataset = packaged.datasets.get(name)
        offer = dataset.offer if dataset else DeclaredVersions()
        there = prepared.get(name, {})
        reasons = {
            text: offer.blocked.reason(one.version, one.config) or one.metadata.blocked_reason
            for text, one in there.items()
        }
        yield Row(
            name=name,
            version=str(offer.current) if offer.current else None,
            prepared=list(there),
            summary=dataset.summary if dataset else "",
            buildable=[str(version) for version in offer.built],
            blocked={text: reason for text, reason in reasons.items() if reason},
        )
