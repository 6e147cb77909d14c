"""`my-datasets new`: creates a builder with a passing test from raw data."""

import tempfile
from pathlib import Path
from typing import Any

import rich_click as click

from my_datasets.cli import options, output


def _shares(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> dict[str, float] | str | None:
    if value is None or "=" not in value:
        return value
    shares = {}
    for part in value.split(","):
        name, _, share = part.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError:
            raise click.BadParameter(f"{part!r} is not NAME=SHARE.") from None
    return shares


@click.command("new")
@click.argument("name")
@click.option(
    "--from", "where", required=True, metavar="PATH|URL",
    type=options.PathOrAddress(any_scheme=True),
    help="The raw data: a file, folder, glob pattern, archive or HTTP URL.",
)  # fmt: skip
@click.option("--label", metavar="COLUMN", help="The column to predict.")
@click.option(
    "--split",
    callback=_shares,
    metavar="COLUMN|NAME=SHARE,...",
    help="A column with the names of splits, or shares such as train=0.8,test=0.2.  "
    "[default: everything in train]",
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    metavar="N",
    help="Make N equal splits instead of --split.",
)
@click.option("--group", metavar="COLUMN", help="Keep rows with the same value in one split.")
@click.option("--stratify", metavar="COLUMN", help="Split each value by the same shares.")
@click.option("--kind", metavar="KIND", help="The kind of data, if file names do not show it.")
@click.option(
    "--key", metavar="COLUMN", help="The column that identifies a row.  [default: row number]"
)
@click.option("--table", metavar="TABLE", help="The table or view of a database.")
@click.option(
    "--package",
    type=options.LocalPath(file_okay=False, path_type=Path),
    default=".",
    show_default="the current directory",
    metavar="DIR",
    help="The project to write to; created if it does not exist.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@options.json_option
@click.pass_context
def command(
    context: click.Context, /, name: str, where: str, label: str | None,
    split: dict[str, float] | str | None, folds: int | None, group: str | None,
    stratify: str | None, package: Path, yes: bool, as_json: bool, **reading: str | None,
) -> None:  # fmt: skip
    """Create a builder for raw data, with dummy data, a test and a README to fill in.

    Detects the kind of data, its columns and their types, and asks you to confirm a preview. The
    dummy data is sampled from the real data; columns that look personal are scrambled. The test
    passes without changes.

    Example: my-datasets new titanic --from titanic.csv --label survived --package ours --yes
    """
    output.quiet_tensorflow()
    from my_datasets.scaffolding.code import SplitCode
    from my_datasets.scaffolding.scaffold import dataset_paths, inspect_raw_data, scaffold

    if folds and (split or stratify):
        raise click.UsageError("--folds cannot be combined with --split or --stratify.")
    if (group or stratify) and not (folds or isinstance(split, dict)):
        raise click.UsageError(
            "--group and --stratify need shares, such as --split train=0.8,test=0.2"
        )
    dataset_paths(name, package)
    scratch = context.with_resource(tempfile.TemporaryDirectory())
    column = split if isinstance(split, str) else None
    found, local, fetched = inspect_raw_data(
        where, Path(scratch), label=label, split=column, **reading
    )
    if not as_json:
        _preview(found)
    if not (yes or as_json) and not click.confirm(f"Write the dataset {name!r}?", err=True):
        raise click.Abort
    how = SplitCode(
        shares=split if isinstance(split, dict) else None, column=column, group=group,
        stratify=stratify, folds=folds,
    )  # fmt: skip
    made = scaffold(name, where, local, found, into=package, split=how, fetched=fetched)
    if as_json:
        output.print_json(
            {
                "name": made.name,
                "files": [str(path) for path in made.files],
                "dummy_data": str(made.dummy_data),
                "splits": made.splits,
                "personal": made.personal,
                "build": made.build,
            }
        )
        return
    for path in made.files:
        output.echo(f"  {path}")
    if made.personal:
        output.echo(
            f"Scrambled in the dummy data because they look personal: {', '.join(made.personal)}"
        )
    output.echo(f"Try it: pytest {made.test}")
    output.echo(f"Build it: {made.build}")


def _preview(found: Any) -> None:
    from rich.table import Table

    table = Table(title=f"First {found.sample.num_rows:,} rows, read as {found.kind}")
    for title in ("column", "type", "seen", "first values"):
        table.add_column(title, overflow="fold")
    for column in found.columns:
        first = [_shortly(value) for value in found.sample.column(column.name)[:3].to_pylist()]
        marks = " (label)" if column.feature == found.label else ""
        marks += " (personal?)" if column.personal else ""
        seen = column.doc.removeprefix("To be described").strip(" .()")
        table.add_row(column.name + marks, str(column.kind), seen, ", ".join(first))
    output.console(stderr=True).print(table)


def _shortly(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 24 else text[:23] + "…"
