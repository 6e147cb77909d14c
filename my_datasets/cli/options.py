"""Options that several commands share, and the types of their values."""

import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import rich_click as click

from my_datasets.core.sizes import in_bytes
from my_datasets.errors import BuilderImportError, InvalidOptionError, MyDatasetsError
from my_datasets.resolving.registry import builder_import_error
from my_datasets.storage import addresses

if TYPE_CHECKING:
    from my_datasets.publishing.catalog_client import CatalogClient
    from my_datasets.publishing.model.signing import Signer, TrustedKeys

_F = TypeVar("_F", bound=Callable[..., object])
_SECONDS = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


class Decorator(Protocol):
    """An option, to be put above a command."""

    def __call__(self, command: _F, /) -> _F:
        """Adds the option."""


class LocalPath(click.Path):
    """The type of a parameter that is a local path, not a URL."""

    def __init__(self, *, fix: str = "name a path on this machine", **options: Any) -> None:
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
        self.schemes = None if any_scheme else schemes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the path or URL."""
        try:
            return addresses.path_or_address(value, "The path", self.schemes)
        except InvalidOptionError as error:
            self.fail(str(error), param, ctx)


def size(text: str) -> int:
    """Returns the bytes in a text such as 300M or 4G; K, M, G and T are powers of 1024."""
    try:
        return in_bytes(text)
    except InvalidOptionError as error:
        raise click.BadParameter(str(error)) from error


def _seconds(text: str) -> float:
    """Returns a duration such as 30d in seconds."""
    found = re.fullmatch(r"(\d{1,6})([hdw])", text)
    if found is None and text != "0":
        raise click.BadParameter("use hours, days or weeks: 12h, 30d or 8w; or 0 for no limit")
    return float(found[1]) * _SECONDS[found[2]] if found is not None else 0.0


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
download_dir_option: Decorator = click.option(
    "--download-dir",
    metavar="DIR",
    type=PathOrAddress("gs"),
    help="The download directory.  [default: <data-dir>/downloads]",
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
strict_option: Decorator = click.option("--strict", is_flag=True, help="Count warnings as errors.")
quiet_option: Decorator = click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
max_memory_option: Decorator = click.option(
    "--max-memory",
    type=size,
    metavar="SIZE",
    help="Memory for data, over all processes, such as 500M or 4G.  "
    "[default: 2G, or a quarter of the machine's]",
)
resume_option: Decorator = click.option(
    "--resume/--restart",
    default=True,
    help="Resume an unfinished run, or discard it and start over.  [default: resume]",
)
max_quarantined_option: Decorator = click.option(
    "--max-quarantined",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    metavar="SHARE",
    help="Fail if more than this share of a split is quarantined.",
)


def version_gate_option(before: str = "version") -> Decorator:
    """Returns the option for the version gate, which compares with the previous `before`."""
    return click.option(
        "--version-gate/--no-version-gate",
        default=True,
        help="Refuse a version number that is too low for the changes since the previous "
        f"{before}.  [default: refuse]",
    )


def transfers_option(what: str) -> Decorator:
    """Returns the option for the number of parallel uploads or downloads."""
    return click.option(
        "--workers",
        type=click.IntRange(min=1),
        default=8,
        show_default=True,
        metavar="N",
        help=f"Number of parallel {what}.",
    )


def import_modules(modules: str | None) -> None:
    """Imports comma-separated modules, which register their builders.

    Raises:
      BuilderImportError: A module does not exist, or raised while it was imported.
    """
    for module in filter(None, (modules or "").split(",")):
        try:
            importlib.import_module(module)
        except MyDatasetsError:
            raise
        except Exception as error:
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            if missing is not None and f"{module}.".startswith(f"{missing}."):
                raise BuilderImportError(
                    f"There is no module {module!r} to import.",
                    fix="correct --imports, or add the module's directory to PYTHONPATH",
                ) from None
            raise builder_import_error(module, module, error) from error


# For commands that read prepared data, which may need custom feature classes.
feature_imports_option: Decorator = click.option(
    "--imports",
    metavar="MODULES",
    expose_value=False,
    callback=lambda _context, _option, modules: import_modules(modules),
    help="Import these modules first, comma-separated; they may register feature classes.",
)
imports_option: Decorator = click.option(
    "--imports", metavar="MODULES", help="Import these modules first, comma-separated."
)


def _mirrors(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value in values:
        begin, _, other = value.partition("=")
        if not begin or not other:
            raise click.BadParameter(f"{value!r} is not ADDRESS=OTHER.")
        found.setdefault(begin, []).append(other)
    return found


mirror_option: Decorator = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    callback=_mirrors,
    metavar="ADDRESS=OTHER",
    help="Try OTHER first for downloads whose address starts with ADDRESS. Repeatable.",
)


def store_option(name: str, *, reads: bool, required: bool = True) -> Decorator:
    """Returns the option that names a store."""
    kinds = "a directory, s3://BUCKET/FOLDER, gs://BUCKET/FOLDER"
    return click.option(
        name,
        "store",
        required=required,
        metavar="STORE",
        type=PathOrAddress(any_scheme=True) if reads else PathOrAddress("s3", "gs"),
        # Where the option is optional, the variable must not change what the command does.
        envvar="MY_DATASETS_STORE" if required else None,
        show_envvar=required,
        help=f"The store: {kinds}{', or http(s)://HOST/FOLDER' if reads else ''}.",
    )


def _trusted_keys(
    _context: click.Context, _option: click.Parameter, path: Path | None
) -> "TrustedKeys | None":
    if path is None:
        return None
    from my_datasets.publishing.model.signing import TrustedKeys

    return TrustedKeys.read(path)


sign_key_option: Decorator = click.option(
    "--sign-key",
    type=LocalPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="MY_DATASETS_SIGN_KEY",
    show_envvar=True,
    help="Sign with this Ed25519 key, such as ~/.ssh/id_ed25519.",
)
trusted_keys_option: Decorator = click.option(
    "--trusted-keys",
    type=LocalPath(dir_okay=False, path_type=Path),
    callback=_trusted_keys,
    metavar="FILE",
    envvar="MY_DATASETS_TRUSTED_KEYS",
    show_envvar=True,
    help="Accept only data signed by one of these public keys, one per line.  [default: the keys "
    "in the project's lock or the user's settings]",
)
valid_for_option: Decorator = click.option(
    "--valid-for",
    type=_seconds,
    metavar="TIME",
    help="Let signatures of the store's indexes expire after this time, such as 30d; 0 for never.",
)


def file_option(name: str, metavar: str, help_: str, **more: Any) -> Decorator:
    """Returns an option that names an existing local file."""
    type_ = LocalPath(exists=True, dir_okay=False, path_type=Path)
    return click.option(*name.split(), type=type_, metavar=metavar, help=help_, **more)


def signer(path: Path | None) -> "Signer | None":
    """Returns the key to sign with; prompts for its password if it has one."""
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


def catalog_client(
    store: str, trusted_keys: "TrustedKeys | None", sign_key: Path | None = None
) -> "CatalogClient":
    """Returns the client for a store's catalog."""
    from my_datasets.publishing.catalog_client import CatalogClient
    from my_datasets.storage.backends import open_store
    from my_datasets.storage.retry import RetryingStore

    by = signer(sign_key)
    return CatalogClient(RetryingStore(open_store(store)), keys=trusted_keys, signer=by)
