"""`my-datasets check`: checks a builder before building."""

from pathlib import Path

import rich_click as click

from my_datasets.cli.output import bold, console, echo, json_option, print_json


@click.command("check")
@click.argument("builders", metavar="[NAME|PATH]...", nargs=-1)
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for a builder to yield its first examples.",
)
@json_option
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
        print_json({name: [issue.to_json() for issue in issues] for name, issues in found.items()})
    else:
        out = console()
        for name, issues in found.items():
            out.print(bold(name), f": {_summary([i.severity.value for i in issues])}", sep="")
            for issue in issues:
                echo(str(issue))
    counted = [issue for issues in found.values() for issue in issues]
    if any(strict or issue.severity is Severity.ERROR for issue in counted):
        context.exit(1)


def _summary(severities: list[str]) -> str:
    if not severities:
        return "no problems found"
    counts = [(kind, severities.count(kind)) for kind in ("error", "warning")]
    return ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts if n)
