"""What the commands about stores share: which store, by which keys, and how far it is."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from my_datasets.cli.render.output import LocalPath, PathOrAddress, echo, error_console

if TYPE_CHECKING:
    from my_datasets.publishing.catalog_client import CatalogClient
    from my_datasets.publishing.model.signing import Signer, TrustedKeys
    from my_datasets.publishing.transfer import TransferProgress

_KINDS = "a directory, s3://BUCKET/FOLDER, gs://BUCKET/FOLDER"
_LOG_EVERY_SECONDS = 10.0
_SECONDS = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def store_option(*names: str, reads: bool, required: bool = True) -> Callable[..., Any]:
    """Returns the option that says which store is meant."""
    kinds = f"{_KINDS}, or http(s)://HOST/FOLDER" if reads else _KINDS
    known = PathOrAddress(any_scheme=True) if reads else PathOrAddress("s3", "gs")
    return click.option(
        *names, "store", required=required, metavar="STORE", type=known,
        # Where no store is the usual case, one in the environment would change what is meant.
        envvar="MY_DATASETS_STORE" if required else None, show_envvar=required,
        help=f"The store: {kinds}.",
    )  # fmt: skip


_key_path = LocalPath(dir_okay=False, path_type=Path)

sign_key_option: Callable[..., Any] = click.option(
    "--sign-key", type=_key_path, metavar="FILE", envvar="MY_DATASETS_SIGN_KEY", show_envvar=True,
    help="Sign by this Ed25519 key, such as ~/.ssh/id_ed25519.",
)  # fmt: skip


def _seconds(text: str) -> float:
    """Returns a time such as 30d, in seconds."""
    found = re.fullmatch(r"(\d{1,6})([hdw])", text)
    if found is None and text != "0":
        raise click.BadParameter("give hours, days or weeks: 12h, 30d or 8w; or 0 for ever")
    return float(found[1]) * _SECONDS[found[2]] if found is not None else 0.0


valid_for_option: Callable[..., Any] = click.option(
    "--valid-for", type=_seconds, metavar="TIME",
    help="From now on, signatures of the store's lists count for so long, such as 30d, and are to "
    "be renewed; 0 for ever.",
)  # fmt: skip
trusted_keys_option: Callable[..., Any] = click.option(
    "--trusted-keys", type=_key_path, metavar="FILE", envvar="MY_DATASETS_TRUSTED_KEYS",
    show_envvar=True,
    help="Public keys whose signatures count, one a line; nothing else is taken.  [default: those "
    "of the project's lock or the user's settings]",
)  # fmt: skip


def signer(path: Path | None) -> "Signer | None":
    """Returns the key to sign by; its password is asked for if it has one."""
    if path is None:
        return None
    from my_datasets.errors import SignatureError
    from my_datasets.publishing.model.signing import Signer

    try:
        return Signer.read(path)
    except SignatureError as error:
        if "it is encrypted" not in str(error) or not sys.stdin.isatty():
            raise
        password: str = click.prompt(f"Password of {path}", hide_input=True, err=True)
        return Signer.read(path, password.encode())


def trusted(path: Path | None) -> "TrustedKeys | None":
    """Returns the keys whose signatures count; None if nobody said."""
    if path is None:
        return None
    from my_datasets.publishing.model.signing import TrustedKeys

    return TrustedKeys.read(path)


def ledger(
    store: str, *, sign_key: Path | None = None, trusted_keys: Path | None = None
) -> "CatalogClient":
    """Returns the ledger of a store."""
    from my_datasets.publishing.catalog_client import CatalogClient
    from my_datasets.storage.opening import open_store
    from my_datasets.storage.retry import RetryingStore

    keys, by = trusted(trusted_keys), signer(sign_key)
    return CatalogClient(RetryingStore(open_store(store)), keys=keys, signer=by)


@contextlib.contextmanager
def progress(*, shown: bool) -> "Iterator[Callable[[TransferProgress], None]]":
    """Shows how far it is on stderr: a bar on a terminal, lines in a log, or nothing.

    Yields:
      What is to be told.
    """
    out = error_console()
    if not shown:
        yield lambda _: None
    elif out.is_terminal:
        with _bar(out) as tell:
            yield tell
    else:
        yield _LogLines()


@contextlib.contextmanager
def _bar(out: Any) -> "Iterator[Callable[[TransferProgress], None]]":
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(),
               TransferSpeedColumn(), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=out, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(now: "Any") -> None:
            if now.stage not in tasks:
                tasks[now.stage] = bar.add_task(now.stage, total=now.total)
            bar.update(tasks[now.stage], completed=now.done, total=now.total)

        yield tell


class _LogLines:
    """Prints the first line of each stage, then one every ten seconds."""

    def __init__(self) -> None:
        self._stage = ""
        self._told = 0.0

    def __call__(self, now: "TransferProgress") -> None:
        is_new = now.stage != self._stage
        if now.total and (is_new or now.seconds - self._told >= _LOG_EVERY_SECONDS):
            self._stage, self._told = now.stage, now.seconds
            left = now.seconds_left
            ending = "" if left is None else f", {left:,.0f} s left"
            echo(
                f"{now.stage} {now.done / 1e6:,.1f} of {now.total / 1e6:,.1f} MB{ending}", err=True
            )
