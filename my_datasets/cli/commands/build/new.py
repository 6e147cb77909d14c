"""`my-datasets new`: from raw data to a builder that passes its test."""

import tempfile
from pathlib import Path
from typing import Any

import rich_click as click

from my_datasets.cli.output import (
    LocalPath,
    PathOrAddress,
    console,
    error_console,
    json_option,
    print_json,
    quiet_tensorflow,
)


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
    "--from", "where", required=True, metavar="PATH|URL", type=PathOrAddress(any_scheme=True),
    help="The raw data: a file, a folder, a pattern, an archive, or an HTTP address.",
)  # fmt: skip
@click.option("--label", metavar="COLUMN", help="The column to be learned.")
@click.option(
    "--split",
    callback=_shares,
    metavar="COLUMN|NAME=SHARE,...",
    help="A column that names the splits, or shares such as train=0.8,test=0.2.  "
    "[default: all in train]",
)
@click.option(
    "--folds", type=click.IntRange(min=2), metavar="N", help="N equal parts, in place of --split."
)
@click.option("--group", metavar="COLUMN", help="Rows of one value in it are in one split.")
@click.option("--stratify", metavar="COLUMN", help="Splits have their shares of each value in it.")
@click.option("--kind", metavar="KIND", help="What the data are, if their names do not tell.")
@click.option("--key", metavar="COLUMN", help="What identifies a row, if not its number.")
@click.option("--table", metavar="TABLE", help="The table, or view, of a database.")
@click.option(
    "--package",
    type=LocalPath(file_okay=False, path_type=Path),
    default=".",
    show_default="the directory where you are",
    metavar="DIR",
    help="The project to write into; made if it is not there.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    name: str,
    where: str,
    label: str | None,
    split: Any,
    folds: int | None,
    group: str | None,
    stratify: str | None,
    kind: str | None,
    key: str | None,
    table: str | None,
    package: Path,
    yes: bool,
    as_json: bool,
) -> None:
    """Write a builder for raw data, with dummy data, a test, and a page to fill in.

    The data are looked at: their kind, columns and types. A preview is shown, and asked about. Then
    the builder is written, tried on dummy data that are sampled from the real ones (columns that
    look personal are scrambled), and its test passes as it is.

    Example: my-datasets new titanic --from titanic.csv --label survived --package ours --yes
    """
    quiet_tensorflow()
    from my_datasets.scaffolding import project
    from my_datasets.scaffolding.code import SplitCode
    from my_datasets.scaffolding.scaffold import inspect_raw_data, scaffold

    if folds and (split or stratify):
        raise click.UsageError("--folds goes with --group, not with --split or --stratify.")
    if (group or stratify) and not (folds or isinstance(split, dict)):
        raise click.UsageError("--group and --stratify need shares: --split train=0.8,test=0.2")
    project.places(name, package)
    scratch = context.with_resource(tempfile.TemporaryDirectory())
    column = split if isinstance(split, str) else None
    found, local, fetched = inspect_raw_data(
        where, Path(scratch), kind=kind, label=label, split=column, key=key, table=table
    )
    if not as_json:
        _preview(found)
    if not (yes or as_json) and not click.confirm(f"Write the dataset {name!r}?", err=True):
        raise click.Abort
    how = SplitCode(
        shares=split if isinstance(split, dict) else None,
        column=column,
        group=group,
        stratify=stratify,
        folds=folds,
    )
    made = scaffold(name, where, local, found, into=package, split=how, fetched=fetched)
    if as_json:
        print_json(
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
    out = console()
    for path in made.files:
        out.print(f"  {path}", soft_wrap=True, markup=False)
    if made.personal:
        out.print(
            f"Scrambled in the dummy data, as they look personal: {', '.join(made.personal)}",
            soft_wrap=True,
            markup=False,
        )
    out.print(f"Try it: pytest {made.test}", soft_wrap=True, markup=False)
    out.print(f"Build it: {made.build}", soft_wrap=True, markup=False)


def _preview(found: Any) -> None:
    from rich.table import Table

    table = Table(title=f"{found.sample.num_rows:,} rows looked at, as {found.kind}")
    for title in ("column", "type", "seen", "first values"):
        table.add_column(title, overflow="fold")
    for column in found.columns:
        first = [_shortly(value) for value in found.sample.column(column.name)[:3].to_pylist()]
        marks = " (label)" if column.feature == found.label else ""
        marks += " (personal?)" if column.personal else ""
        seen = column.doc.removeprefix("To be described").strip(" .()")
        table.add_row(column.name + marks, str(column.kind), seen, ", ".join(first))
    error_console().print(table)


def _shortly(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 24 else text[:23] + "…"
