"""`my-datasets list`: lists datasets and their prepared versions."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.metadata import layout
from my_datasets.resolving.registry import packaged
from my_datasets.resolving.version_select import DeclaredVersions


@dataclass(frozen=True)
class Row:
    """A dataset that has a builder in this package, prepared versions, or both.

    Attributes:
      version: The builder's version; None without a builder.
      prepared: The prepared versions, as `[config/]version`.
      buildable: The versions that the builder supports, the current one first.
      blocked: Blocked prepared versions, with the reason.
    """

    name: str
    version: str | None
    prepared: list[str]
    summary: str
    buildable: list[str] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)


@click.command("list")
@options.data_dir_option_of(options.PathOrAddress("gs"))
@options.json_option
def command(data_dir: str | None, as_json: bool) -> None:
    """List this package's datasets and those prepared on this machine.

    Shows the versions that each builder supports and all prepared versions, without importing any
    builder.

    Example: my-datasets list --json
    """
    directory = output.reading_dir(data_dir)
    rows = list(_rows(directory))
    if as_json:
        output.print_json({"data_dir": str(directory), "datasets": [asdict(row) for row in rows]})
        return
    from rich.table import Table

    table = Table("dataset", "versions", "prepared", "description", box=None, pad_edge=False)
    for row in rows:
        prepared = [f"{one} (blocked)" if one in row.blocked else one for one in row.prepared]
        table.add_row(
            row.name, ", ".join(row.buildable) or "-", ", ".join(prepared) or "-", row.summary
        )
    output.console().print(table)
    for row in rows:
        for version, reason in row.blocked.items():
            output.echo(f"{row.name}:{version} is blocked: {reason}")
    output.echo(f"Prepared data: {directory}")


def _rows(data_dir: Path) -> Iterator[Row]:
    prepared: dict[str, dict[str, layout.PreparedVersion]] = {}
    for found in layout.prepared_versions(data_dir):
        config = f"{found.config}/" if found.config else ""
        prepared.setdefault(found.name, {})[f"{config}{found.version}"] = found
    for name in sorted({*packaged.datasets, *prepared}):
        dataset = packaged.datasets.get(name)
        declared = dataset.declared_versions if dataset else DeclaredVersions()
        versions = prepared.get(name, {})
        reasons = {
            text: declared.blocked.reason(one.version, one.config) or one.metadata.blocked_reason
            for text, one in versions.items()
        }
        yield Row(
            name=name,
            version=str(declared.current) if declared.current else None,
            prepared=list(versions),
            summary=dataset.summary if dataset else "",
            buildable=[str(version) for version in declared.built],
            blocked={text: reason for text, reason in reasons.items() if reason},
        )
