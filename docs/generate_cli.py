"""Writes docs/cli.md from the commands themselves: python docs/generate_cli.py [--check]."""

import argparse
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rich_click as click

from my_datasets.cli.main import COMMANDS, cli

PAGE = Path(__file__).parent / "cli.md"

HEAD = """\
# The command line

Written by `python docs/generate_cli.py` from the commands' own help; a test fails if it is old.

Options may be spelled with `-` or with `_`, as `tfds` users are used to. Exit codes: 0 done, 1 the
command failed, 2 wrong usage, 130 after Ctrl-C, 143 after SIGTERM. Results go to stdout, progress
and errors to stderr.
"""


def page() -> str:
    """Returns the whole page."""
    context = click.Context(cli, info_name="my-datasets")
    sections = [HEAD]
    for name in sorted(COMMANDS):
        command = cli.get_command(context, name)
        sections.append("\n".join(_section(command, click.Context(command, parent=context))))
    return "\n".join(sections)


def _section(command: Any, context: Any) -> Iterator[str]:
    usage = " ".join(piece for piece in command.collect_usage_pieces(context))
    yield f"## `my-datasets {command.name} {usage}`\n"
    text, *examples = inspect.cleandoc(command.help).split("Example:")
    yield f"{text.strip()}\n"
    examples += (command.epilog or "").split("Example:")[1:]
    if examples:
        yield "```\n" + "\n".join(" ".join(one.split()) for one in examples) + "\n```\n"
    yield "| option | |"
    yield "|---|---|"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record:
            yield f"| `{record[0].replace('|', '&#124;')}` | {' '.join(record[1].split())} |"
    yield ""


def main() -> None:
    """Writes the page, or with --check fails if it differs."""
    parser = argparse.ArgumentParser(description="Writes docs/cli.md from the commands.")
    parser.add_argument("--check", action="store_true", help="fail if the page is not up to date")
    if not parser.parse_args().check:
        PAGE.write_text(page(), "utf-8")
    elif PAGE.read_text("utf-8") != page():
        sys.exit(f"{PAGE} is not up to date; run python {__file__}")


if __name__ == "__main__":
    main()
