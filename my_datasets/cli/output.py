"""Prints results, errors and progress, free of control characters."""

import collections
import contextlib
import functools
import json
import logging
import os
import shlex
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from my_datasets.building.progress import BuildProgress
from my_datasets.core import interruption
from my_datasets.core.issue import Issue
from my_datasets.core.progress import OnProgress, Progress, ignore
from my_datasets.core.sizes import human_size as human_size  # the commands take it from here
from my_datasets.errors import (
    BuilderImportError,
    DataDirError,
    DataDirNotFoundError,
    InvalidOptionError,
    MyDatasetsError,
    in_an_object_store,
)
from my_datasets.printable import printable, printable_json
from my_datasets.storage import addresses
from my_datasets.storage.regular_files import write_whole
from my_datasets.storage.user_folders import cache_folder

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def default_data_dir() -> str:
    """Returns TFDS's default data directory without importing TFDS."""
    return os.environ.get("TFDS_DATA_DIR") or os.path.expanduser("~/tensorflow_datasets")


def cache_dir(name: str) -> Path | None:
    """Returns a folder of the user's cache; None for a user without a home."""
    try:
        return cache_folder(name)
    except DataDirError:
        return None


def reading_dir(data_dir: str | None) -> Path:
    """Returns the data directory to read.

    Raises:
      DataDirNotFoundError: The given one does not exist. The default one may be absent.
    """
    directory = addresses.as_path(data_dir or default_data_dir())
    if data_dir and not directory.is_dir():
        if addresses.is_remote(data_dir):  # TensorFlow may not support its scheme
            raise in_an_object_store(data_dir)
        raise DataDirNotFoundError(
            f"The data directory {data_dir} does not exist.",
            fix="correct --data-dir, or build a dataset there: "
            f"my-datasets build digits --data-dir {data_dir}",
        )
    return directory


def quiet_tensorflow() -> None:
    """Silences TensorFlow's start-up messages, unless the user has set their level."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # also gives the same sums everywhere


def print_json(value: object) -> None:
    """Prints a JSON document on stdout."""
    click.echo(printable_json(json.dumps(value, indent=2)))


def write_page(file: str, page: str) -> None:
    """Writes an HTML page atomically, and says where.

    Raises:
      InvalidOptionError: The file cannot be written.
    """
    target = Path(file)
    try:
        if target.exists() and not target.is_file():  # a device or a pipe, such as /dev/stdout
            target.write_text(page, "utf-8")
        else:
            write_whole(target, page, fsync=False)
    except OSError as error:
        raise InvalidOptionError(
            f"{file} cannot be written: {error.strerror}.",
            fix="name a file in an existing, writable directory",
        ) from error
    echo(f"Wrote {file}", err=True)


def console(*, stderr: bool = False) -> "Console":
    """Returns a console that interprets no markup and no control characters."""
    return _console_class()(highlight=False, markup=False, emoji=False, stderr=stderr)


@functools.cache
def _console_class() -> "type[Console]":
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """Escapes control characters in texts, but keeps its own colors and cursor movements."""

        def render_str(self, text: str, **options: Any) -> Any:
            # Before tables are laid out, since an escape is wider than its character.
            return super().render_str(printable(text), **options)

        def render(self, renderable: Any, options: Any = None) -> Any:
            for segment in super().render(renderable, options):
                if segment.control:
                    yield segment
                else:
                    yield Segment(printable(segment.text), segment.style)

    return PrintableConsole


def bold(text: str, style: str = "bold") -> "Text":
    """Returns a text in bold, or in another style, for a console."""
    from rich.text import Text

    return Text(printable(text), style, overflow="fold")


def plain(text: str) -> "Text":
    """Returns a text for a cell of a table; long ones are folded."""
    return bold(text, "")


def counted(issues: Iterable[Issue]) -> str:
    """Returns the number of errors and of warnings; "" if there are none."""
    kinds = collections.Counter(issue.severity.value for issue in issues)
    counts = [(kind, kinds[kind]) for kind in ("error", "warning")]
    return ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts if n)


def echo(text: str, *, err: bool = False) -> None:
    """Prints a line, on stdout or on stderr."""
    click.echo(printable(text), err=err)


class _PrintableRecord(logging.LogRecord):
    def getMessage(self) -> str:  # noqa: N802 - logging's name
        return printable(super().getMessage())


def print_only_printable() -> None:
    """Makes all logs, warnings and tracebacks of this process printable."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # consoles without UTF-8
    logging.setLogRecordFactory(_PrintableRecord)
    formatted = warnings.formatwarning
    warnings.formatwarning = lambda *given, **named: printable(formatted(*given, **named))
    sys.excepthook = lambda *error: echo("".join(traceback.format_exception(*error)), err=True)


def report_interruption(error: BaseException) -> None:
    """Prints on stderr what an interrupted command keeps, and the command that resumes it."""
    notes = interruption.notes(error)
    echo(f"Interrupted. {' '.join(notes)}".rstrip(), err=True)
    if notes:
        # --restart would discard what is kept.
        again = [one for one in sys.argv[1:] if one != "--restart"]
        echo(f"To resume: {shlex.join(['my-datasets', *again])}", err=True)


def report_error(error: MyDatasetsError) -> None:
    """Prints an error on stderr; for a builder that fails to import, its own traceback too."""
    if isinstance(error, BuilderImportError) and error.__cause__ is not None:
        echo("".join(traceback.format_exception(error.__cause__)), err=True)
    click.secho("Error: ", fg="red", bold=True, nl=False, err=True)
    echo(str(error), err=True)


_LOG_EVERY_SECONDS = 10.0


@contextlib.contextmanager
def progress_bar(*, shown: bool = True, in_bytes: bool = False) -> Iterator[OnProgress]:
    """Shows a bar on a terminal, and nothing elsewhere.

    Args:
      shown: Whether to show it at all.
      in_bytes: Whether bytes are counted, rather than examples or datasets.
    """
    from rich import progress as rich

    count = rich.DownloadColumn() if in_bytes else rich.MofNCompleteColumn()
    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        count,
        *([rich.TransferSpeedColumn()] if in_bytes else []),
        rich.TimeRemainingColumn(),
    )
    out = console(stderr=True)
    if not (shown and out.is_terminal):
        yield ignore
        return
    with rich.Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("", total=None)
        last = Progress("", 0, 0)

        def update(now: Progress) -> None:
            nonlocal last
            if now.total != last.total or now.done < last.done:
                bar.reset(task, total=now.total)
            bar.update(task, description=now.stage, completed=now.done)
            last = now

        yield update


@contextlib.contextmanager
def transfer_progress(*, shown: bool) -> Iterator[OnProgress]:
    """Shows the progress of a transfer: a bar on a terminal, lines in a log."""
    if shown and not console(stderr=True).is_terminal:
        yield log_lines()
    else:
        with progress_bar(shown=shown, in_bytes=True) as update:
            yield update


def log_lines() -> Callable[[Progress | BuildProgress], None]:
    """Returns what prints a line when a stage begins, then one every ten seconds."""
    stage, logged_at = "", 0.0

    def log(now: Progress | BuildProgress) -> None:
        nonlocal stage, logged_at
        if isinstance(now, Progress) and not now.total:
            return
        at = time.monotonic()
        if now.stage != stage or at - logged_at >= _LOG_EVERY_SECONDS:
            stage, logged_at = now.stage, at
            echo(str(now), err=True)

    return log
