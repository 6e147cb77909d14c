"""What all commands share: common options, and printing of results and errors."""

import functools
import json
import logging
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import rich_click as click

from my_datasets.core import interruption
from my_datasets.core.sizes import human_size as human_size  # the commands take it from here
from my_datasets.core.sizes import in_bytes
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

_F = TypeVar("_F", bound=Callable[..., object])


class Decorator(Protocol):
    """An option, to be put above a command."""

    def __call__(self, command: _F, /) -> _F:
        """Adds the option."""


class LocalPath(click.Path):
    """The type of a parameter that is a local path, not a URL."""

    def __init__(self, *, fix: str = "name a path on this machine", **options: Any) -> None:
        """Takes the fix for a URL, and the options of `click.Path`."""
        super().__init__(**options)
        self._fix = fix

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the path, also for `file:///PATH`."""
        try:
            local = addresses.local_path(value, "The path", self._fix)
        except InvalidOptionError as error:
            self.fail(str(error), param, ctx)
        return super().convert(os.fspath(local), param, ctx)


class PathOrAddress(click.ParamType[str]):
    """The type of a parameter that is a local path or a URL, as text.

    Attributes:
      schemes: The URL schemes that are accepted, such as `s3`; None for all.
    """

    name = "path or address"

    def __init__(self, *schemes: str, any_scheme: bool = False) -> None:
        """Accepts these schemes, or any."""
        self.schemes = None if any_scheme else schemes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the path or URL."""
        try:
            return addresses.path_or_address(value, "The path", self.schemes)
        except InvalidOptionError as error:
            self.fail(str(error), param, ctx)


def data_dir_option_of(type_: click.ParamType[Any]) -> Decorator:
    """Returns the option for the data directory, as a parameter of the given type."""
    return click.option(
        "--data-dir",
        metavar="DIR",
        type=type_,
        help="The data directory.  [default: $TFDS_DATA_DIR, else ~/tensorflow_datasets]",
    )


data_dir_option = data_dir_option_of(
    LocalPath(
        fix="name a local directory; my_datasets.pipeline(..., data_dir=...) reads data in an "
        "object store in place"
    )
)
workers_option: Decorator = click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of processes.  [default: number of cores]",
)
json_option: Decorator = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
html_option: Decorator = click.option(
    "--html", metavar="FILE", type=LocalPath(), help="Also write a self-contained HTML page."
)


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


def console() -> "Console":
    """Returns a console on stdout that interprets no markup and no control characters."""
    return _console_class()(highlight=False, markup=False, emoji=False)


def error_console() -> "Console":
    """Returns the same on stderr."""
    return _console_class()(highlight=False, markup=False, emoji=False, stderr=True)


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


def size(text: str) -> int:
    """Returns the bytes in a text such as 300M or 4G; K, M, G and T are powers of 1024."""
    try:
        return in_bytes(text)
    except InvalidOptionError as error:
        raise click.BadParameter(str(error)) from error


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
