"""`my-datasets diff`: compares two versions, and checks the version number."""

from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli import options, output

if TYPE_CHECKING:
    from my_datasets.comparison.diff import Diff


@click.command("diff")
@click.argument("old", metavar="NAME[/CONFIG]:VERSION|PATH")
@click.argument("new", metavar="NAME[/CONFIG]:VERSION|PATH")
@options.data_dir_option
@options.workers_option
@options.html_option
@options.feature_imports_option
@options.json_option
@click.pass_context
def command(
    context: click.Context,
    old: str,
    new: str,
    data_dir: str | None,
    workers: int | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Show the differences between two prepared versions.

    Compares features, splits and examples. Each difference shows which part of the version number
    must be raised for it, and why. Examples may be added, removed, changed, or moved to another
    split. Exits with 1 if the new version number is too low.

    Example: my-datasets diff penguins_study:1.0.0 penguins_study:1.1.0
    """
    from my_datasets.comparison.diff import diff
    from my_datasets.resolving.resolver import version_dir

    old_dir, new_dir = (version_dir(one, data_dir) for one in (old, new))
    found = diff(old_dir, new_dir, workers=workers)
    if html:
        from my_datasets.catalog.pages import diff_page
        from my_datasets.metadata.manifest import Manifest

        statistics = [made.statistics if made else None
                      for made in map(Manifest.read, (old_dir, new_dir))]  # fmt: skip
        output.write_page(html, diff_page(found, *statistics))
    if as_json:
        output.print_json(found.to_json())
    else:
        _show(found)
    if not found.is_enough:
        context.exit(1)


def _show(found: "Diff") -> None:
    from rich.table import Table

    out = output.console()
    out.print(output.bold(found.old), " -> ", output.bold(found.new), sep="", soft_wrap=True)
    if not found.changes:
        output.echo("identical, example for example and byte for byte")
    else:
        table = Table(box=None, pad_edge=False)
        for name in ("requires", "change", "where", "before", "after"):
            table.add_column(name, overflow="fold")
        for change in found.changes:
            bump = output.bold(str(change.bump), "red" if str(change.bump) == "major" else "")
            cells = (change.kind.value, change.node, change.before, change.after)
            table.add_row(bump, *map(output.plain, cells))
        out.print(table)
        for kind, reason in {change.kind: change.reason for change in found.changes}.items():
            output.echo(f"{kind.value}: {reason}")
    for one in found.moved:
        output.echo(
            f"moved: {one.feature} of {one.split}: {one.statistic}: {one.before} -> {one.after} "
            f"({one.measure} {one.distance:.2f})"
        )
    actual = "a lower version, or another dataset" if found.actual is None else str(found.actual)
    output.echo(f"required: {found.required}; actual: {actual}")
    if not found.is_enough:
        output.echo(f"the version number is too low: use {found.least} or higher")
