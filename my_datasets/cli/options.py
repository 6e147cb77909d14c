"""Options of the commands that build versions."""

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from my_datasets.cli.output import LocalPath, PathOrAddress, echo, error_console
from my_datasets.errors import BuilderImportError, MyDatasetsError
from my_datasets.resolving.registry import builder_import_error

if TYPE_CHECKING:
    from my_datasets.publishing.catalog_client import CatalogClient
    from my_datasets.publishing.model.signing import Signer, TrustedKeys
    from my_datasets.publishing.transfer import TransferProgress

max_quarantined_option: Callable[..., Any] = click.option(
    "--max-quarantined",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    metavar="PART",
    help="The part of a split above which setting aside fails.",
)
version_gate_option: Callable[..., Any] = click.option(
    "--version-gate/--no-version-gate",
    default=True,
    help="Refuse a version whose number says less than what changed since the one before it.  "
    "[default: refuse]",
)


def _import(_context: Any, _option: Any, modules: str | None) -> None:
    import_modules(modules)


# For commands that read prepared data: what they import may register feature classes.
feature_imports_option: Callable[..., Any] = click.option(
    "--imports", metavar="MODULES", expose_value=False, callback=_import,
    help="Modules to import first, comma-separated: those that register feature classes of yours.",
)  # fmt: skip


def import_modules(modules: str | None) -> None:
    """Imports comma-separated modules, so that their builders are known.

    Raises:
      BuilderImportError: One of them is not there, or raised while it was imported.
    """
    for module in filter(None, (modules or "").split(",")):
        try:
            importlib.import_module(module)
        except MyDatasetsError:
            raise
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and _is_part(error.name, module):
                raise _not_there(module) from None
            raise builder_import_error(module, module, error) from error


def _is_part(missing: str | None, module: str) -> bool:
    return missing is not None and f"{module}.".startswith(f"{missing}.")


def _not_there(module: str) -> BuilderImportError:
    return BuilderImportError(
        f"There is no module {module!r} to import.",
        fix="correct --imports, or put the directory that holds it on PYTHONPATH",
    )


def _parsed(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value in values:
        begin, separator, other = value.partition("=")
        if not separator or not begin or not other:
            raise click.BadParameter(f"{value!r} is not ADDRESS=OTHER.")
        found.setdefault(begin, []).append(other)
    return found


mirror_option: Callable[..., Any] = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    callback=_parsed,
    metavar="ADDRESS=OTHER",
    help="Try OTHER first for downloads whose address begins with ADDRESS; may be repeated.",
)


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
        if error.code != "encrypted" or not sys.stdin.isatty():
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
