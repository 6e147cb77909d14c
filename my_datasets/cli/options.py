"""Options that several commands share: of builds, `--imports`, `--mirror`, and of stores."""

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.output import Decorator, LocalPath, PathOrAddress, size
from my_datasets.errors import BuilderImportError, MyDatasetsError
from my_datasets.resolving.registry import builder_import_error

if TYPE_CHECKING:
    from my_datasets.publishing.catalog_client import CatalogClient
    from my_datasets.publishing.model.signing import Signer, TrustedKeys

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
version_gate_option: Decorator = click.option(
    "--version-gate/--no-version-gate",
    default=True,
    help="Refuse a version number that is too low for the changes since the previous version.  "
    "[default: refuse]",
)
quiet_option: Decorator = click.option("--quiet", "-q", is_flag=True, help="Show no progress.")


# For commands that read prepared data, which may need custom feature classes.
feature_imports_option: Decorator = click.option(
    "--imports", metavar="MODULES", expose_value=False,
    callback=lambda _context, _option, modules: import_modules(modules),
    help="Import these modules first, comma-separated; they may register feature classes.",
)  # fmt: skip
imports_option: Decorator = click.option(
    "--imports", metavar="MODULES", help="Import these modules first, comma-separated."
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
            if isinstance(error, ModuleNotFoundError) and _is_part(error.name, module):
                raise BuilderImportError(
                    f"There is no module {module!r} to import.",
                    fix="correct --imports, or add the module's directory to PYTHONPATH",
                ) from None
            raise builder_import_error(module, module, error) from error


def _is_part(missing: str | None, module: str) -> bool:
    return missing is not None and f"{module}.".startswith(f"{missing}.")


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


mirror_option: Decorator = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    callback=_parsed,
    metavar="ADDRESS=OTHER",
    help="Try OTHER first for downloads whose address starts with ADDRESS. Repeatable.",
)


_KINDS = "a directory, s3://BUCKET/FOLDER, gs://BUCKET/FOLDER"
_SECONDS = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def store_option(*names: str, reads: bool, required: bool = True) -> Decorator:
    """Returns the option that names a store."""
    kinds = f"{_KINDS}, or http(s)://HOST/FOLDER" if reads else _KINDS
    known = PathOrAddress(any_scheme=True) if reads else PathOrAddress("s3", "gs")
    return click.option(
        *names, "store", required=required, metavar="STORE", type=known,
        # Where the option is optional, the variable must not change what the command does.
        envvar="MY_DATASETS_STORE" if required else None, show_envvar=required,
        help=f"The store: {kinds}.",
    )  # fmt: skip


_key_path = LocalPath(dir_okay=False, path_type=Path)

sign_key_option: Decorator = click.option(
    "--sign-key", type=_key_path, metavar="FILE", envvar="MY_DATASETS_SIGN_KEY", show_envvar=True,
    help="Sign with this Ed25519 key, such as ~/.ssh/id_ed25519.",
)  # fmt: skip


def _seconds(text: str) -> float:
    """Returns a duration such as 30d in seconds."""
    found = re.fullmatch(r"(\d{1,6})([hdw])", text)
    if found is None and text != "0":
        raise click.BadParameter("use hours, days or weeks: 12h, 30d or 8w; or 0 for no limit")
    return float(found[1]) * _SECONDS[found[2]] if found is not None else 0.0


valid_for_option: Decorator = click.option(
    "--valid-for", type=_seconds, metavar="TIME",
    help="Let signatures of the store's indexes expire after this time, such as 30d; 0 for never.",
)  # fmt: skip
trusted_keys_option: Decorator = click.option(
    "--trusted-keys", type=_key_path, metavar="FILE", envvar="MY_DATASETS_TRUSTED_KEYS",
    show_envvar=True,
    help="Accept only data signed by one of these public keys, one per line.  [default: the keys "
    "in the project's lock or the user's settings]",
)  # fmt: skip


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


def trusted(path: Path | None) -> "TrustedKeys | None":
    """Returns the trusted keys in a file; None if no file is named."""
    if path is None:
        return None
    from my_datasets.publishing.model.signing import TrustedKeys

    return TrustedKeys.read(path)


def ledger(
    store: str, *, sign_key: Path | None = None, trusted_keys: Path | None = None
) -> "CatalogClient":
    """Returns the client for a store's catalog."""
    from my_datasets.publishing.catalog_client import CatalogClient
    from my_datasets.storage.retry import RetryingStore
    from my_datasets.storage.store import open_store

    keys, by = trusted(trusted_keys), signer(sign_key)
    return CatalogClient(RetryingStore(open_store(store)), keys=keys, signer=by)
