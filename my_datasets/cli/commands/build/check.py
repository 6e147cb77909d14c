"""`my-datasets check`: checks a builder before building."""

from pathlib import Path

import rich_click as click

from my_datasets.cli import options, output


@click.command("check")
@click.argument("builders", metavar="[NAME|PATH]...", nargs=-1)
@options.strict_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for a builder to yield its first examples.",
)
@options.json_option
@click.pass_context
def command(
    context: click.Context, builders: tuple[str, ...], strict: bool, timeout: float, as_json: bool
) -> None:
    """Check builders for mistakes in seconds, without building.

    Each argument is a dataset of this package, a folder or a module; the default is the current
    folder. The builder is imported in a separate process, and asked for its features, its splits,
    and twice for the first examples from its dummy data. Exits with 1 if there are errors.

    Example: my-datasets check digits
    """
    from my_datasets.checking.checker import check
    from my_datasets.core.issue import Severity

    found = {name: check(name, timeout=timeout) for name in builders or (str(Path.cwd()),)}
    if as_json:
        output.print_json(
            {name: [issue.to_json() for issue in issues] for name, issues in found.items()}
        )
    else:
        out = output.console()
        for name, issues in found.items():
            out.print(
                output.bold(name), f": {output.counted(issues) or 'no problems found'}", sep=""
            )
            for issue in issues:
                output.echo(str(issue))
    every = [issue for issues in found.values() for issue in issues]
    if any(strict or issue.severity is Severity.ERROR for issue in every):
        context.exit(1)
