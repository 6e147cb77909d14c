"""`my-datasets diff`: what is different between two versions, and what that asks of the number."""

from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.options import feature_imports_option
from my_datasets.cli.output import (
    bold,
    console,
    data_dir_option,
    html_option,
    json_option,
    plain,
    print_json,
    workers_option,
    write_page,
)

if TYPE_CHECKING:
    from my_datasets.comparison.diff import Diff


@click.command("diff")
@click.argument("old", metavar="NAME[/CONFIG]:VERSION|PATH")
@click.argument("new", metavar="NAME[/CONFIG]:VERSION|PATH")
@data_dir_option
@workers_option
@html_option
@feature_imports_option
@json_option
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
    """Show what is different between two prepared versions.

    Features, splits and examples are compared; each difference says by which number of the version
    it is to be raised, and why. Of examples it is told which were added, removed, changed, or moved
    from one split to another. Exits with 1 if the version was raised by too little.

    Example: my-datasets diff penguins_study:1.0.0 penguins_study:1.1.0
    """
    from my_datasets.comparison.diff import diff
    from my_datasets.resolving.resolve_prepared import version_dir

    old_dir, new_dir = (version_dir(one, data_dir) for one in (old, new))
    found = diff(old_dir, new_dir, workers=workers)
    if html:
        from my_datasets.catalog.reports import diff_page
        from my_datasets.metadata.manifest import Manifest

        statistics = [made.statistics if made else None
                      for made in map(Manifest.read, (old_dir, new_dir))]  # fmt: skip
        write_page(html, diff_page(found, *statistics))
    if as_json:
        print_json(found.to_json())
    else:
        _show(found)
    if not found.is_enough:
        context.exit(1)


def _show(found: "Diff") -> None:
    from rich.table import Table

    out = console()
    out.print(bold(found.old), " -> ", bold(found.new), sep="", soft_wrap=True)
    if not found.changes:
        out.print("the same, example for example and byte for byte")
    else:
        table = Table(box=None, pad_edge=False)
        for name in ("asks for", "what", "where", "before", "after"):
            table.add_column(name, overflow="fold")
        for change in found.changes:
            bump = bold(str(change.bump), "red" if str(change.bump) == "major" else "")
            cells = (change.kind.value, change.node, change.before, change.after)
            table.add_row(bump, *map(plain, cells))
        out.print(table)
        for kind, reason in {change.kind: change.reason for change in found.changes}.items():
            out.print(f"{kind.value}: {reason}", soft_wrap=True, markup=False)
    for one in found.moved:
        out.print(
            f"moved: {one.feature} of {one.split}: {one.statistic}: {one.before} -> {one.after} "
            f"({one.measure} {one.distance:.2f})",
            soft_wrap=True, markup=False,
        )  # fmt: skip
    actual = "lower, or of another dataset" if found.actual is None else str(found.actual)
    out.print(f"required: {found.required}; actual: {actual}", soft_wrap=True)
    if not found.is_enough:
        out.print(f"too little: give it the version {found.least} or higher", soft_wrap=True)
