"""What the commands share: where they read and print, and how errors look."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rich_click as click

from my_datasets.core import layout
from my_datasets.core.sizes import human_size as human_size  # the commands take it from here
from my_datasets.core.sizes import in_bytes
from my_datasets.errors import (
    BuilderImportError,
    DataDirNotFoundError,
    InvalidOptionError,
    MyDatasetsError,
    explain,
    in_an_object_store,
)

data_dir_option: Callable[..., Any] = click.option(
    "--data-dir",
    metavar="DIR",
    help="Where prepared datasets live.  [default: $TFDS_DATA_DIR, else ~/tensorflow_datasets]",
)
workers_option: Callable[..., Any] = click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: the cores]"
)
json_option: Callable[..., Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on stdout, for scripts."
)

html_option: Callable[..., Any] = click.option(
    "--html", metavar="FILE", help="Write it as a page, one file that shows anywhere, too."
)


def default_data_dir() -> str:
    """Returns TFDS's default data directory, by TFDS's rule, without importing TFDS."""
    return os.environ.get("TFDS_DATA_DIR") or os.path.expanduser("~/tensorflow_datasets")


def reading_dir(data_dir: str | None) -> Path:
    """Returns the data directory to read.

    Raises:
      DataDirNotFoundError: The user named one that does not exist. The default one may be absent.
    """
    directory = layout.as_path(data_dir or default_data_dir())
    if data_dir and not directory.is_dir():
        if layout.is_remote(data_dir):  # which TensorFlow may know nothing of
            raise in_an_object_store(data_dir)
        raise DataDirNotFoundError(
            explain(
                f"The data directory {data_dir} does not exist.",
                mend=f"correct --data-dir, or build something into it: "
                f"my-datasets build digits --data-dir {data_dir}",
            )
        )
    return directory


def quiet_tensorflow() -> None:
    """Keeps TensorFlow's start-up notes off the screen, unless the user has set their level."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # also: the same sums on every machine


def print_json(value: Any) -> None:
    """Prints a JSON document on stdout."""
    click.echo(json.dumps(value, indent=2))


def write_page(file: str, page: str) -> None:
    """Writes a page in HTML, whole or not at all, and says where.

    Raises:
      InvalidOptionError: It cannot be written there.
    """
    target = Path(file)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_text(page, "utf-8")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InvalidOptionError(
            explain(
                f"{file} cannot be written: {error.strerror}.",
                mend="name a file in a directory that is there and may be written",
            )
        ) from error
    click.echo(f"Wrote {file}", err=True)


def console() -> Any:
    """Returns a rich console on stdout."""
    from rich.console import Console

    return Console(highlight=False)


def error_console() -> Any:
    """Returns a rich console on stderr."""
    from rich.console import Console

    return Console(highlight=False, stderr=True)


def size(text: str) -> int:
    """Returns the bytes in a text such as 300M or 4G; K, M, G and T are powers of 1024."""
    try:
        return in_bytes(text)
    except InvalidOptionError as error:
        raise click.BadParameter(str(error)) from error


def report_error(error: MyDatasetsError) -> None:
    """Prints an error on stderr; for a builder that fails to import, its own traceback too."""
    if isinstance(error, BuilderImportError) and error.__cause__ is not None:
        traceback.print_exception(error.__cause__, file=sys.stderr)
    click.secho("Error: ", fg="red", bold=True, nl=False, err=True)
    click.echo(str(error), err=True)
