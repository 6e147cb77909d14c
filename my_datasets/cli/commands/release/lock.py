"""`my-datasets lock`: pins a project's references to exact versions and their content."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.output import (
    LocalPath,
    PathOrAddress,
    console,
    data_dir_option,
    echo,
    json_option,
    print_json,
)
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import LockError

if TYPE_CHECKING:
    from my_datasets.resolving.lock import Lock, Locked


@click.command("lock")
@click.argument("references", metavar="[NAME[/CONFIG][:VERSION]]...", nargs=-1)
@data_dir_option
@click.option(
    "--file", type=LocalPath(dir_okay=False, path_type=Path), default=Path("datasets.lock"),
    show_default=True, metavar="FILE", help="The lock file.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Only check prepared data against the lock.")
@click.option(
    "--trust", type=LocalPath(exists=True, dir_okay=False, path_type=Path), metavar="KEYS",
    help="Require stores to be signed by one of these public keys, one per line.",
)  # fmt: skip
@click.option(
    "--from", "store", metavar="STORE", type=PathOrAddress(any_scheme=True),
    help="With --trust, apply it to this store only, and lock the store's id.",
)  # fmt: skip
@json_option
def command(
    references: tuple[str, ...], data_dir: str | None, file: Path, check: bool,
    trust: Path | None, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Lock references to exact versions and their content.

    Write references as in your code: digits:1.*.* and digits are locked separately. Other
    references stay in the lock; without arguments, all of them are updated. In the lock's
    directory and below, load, pipeline, source and so on then use exactly the locked version, and
    refuse any other data.

    With --trust, the lock also lists trusted keys: pull, load, attach, ls, info and so on then
    accept only what one of these keys has signed.

    Example: my-datasets lock digits:1.*.* cats_and_dogs
    """
    from my_datasets.resolving.lock import Lock

    if store is not None and trust is None:
        raise click.UsageError("--from needs --trust KEYS")
    old = Lock.read(file) if file.exists() else Lock(file)
    if trust is not None:
        old = _trusting(old, trust, store)
        old.write()
        if not references:
            _show_keys(old, as_json=as_json)
            return
    wanted = [str(DatasetReference.parse(one)) for one in references] or list(old.datasets)
    if not wanted:
        raise LockError(
            f"{file} has no references yet.",
            fix="name references as written in your code: my-datasets lock digits:1.*.*",
        )
    if check:
        for one in wanted:
            _check(old, DatasetReference.parse(one), data_dir)
        found = {one: old.datasets[one] for one in wanted}
    else:
        found = {one: _looked_up(one, data_dir) for one in wanted}
        replace(old, path=file, datasets={**old.datasets, **found}).write()
    if as_json:
        print_json({"file": str(file), "datasets": Lock(file, found).to_json()})
        return
    for text, locked in found.items():
        config = f"{locked.config}:" if locked.config else ""
        console().print(
            f"{text} is {config}{locked.version}, digest {locked.digest}", soft_wrap=True
        )


def _trusting(lock: "Lock", keys: Path, store: str | None) -> "Lock":
    """Returns a lock with new trusted keys for a store, or for every store."""
    from my_datasets.publishing.catalog_client import CatalogClient
    from my_datasets.publishing.model.signing import TrustedKeys
    from my_datasets.resolving.lock import TrustedKey
    from my_datasets.storage.retry import RetryingStore
    from my_datasets.storage.store import open_store

    trusted = TrustedKeys.read(keys)
    url, store_id = "", ""
    if store is not None:
        ledger = CatalogClient(RetryingStore(open_store(store)), keys=trusted)
        url, store_id = ledger.store.url, ledger.required().store
    others = [one for one in lock.trusted_keys if one.store != url]
    mine = [TrustedKey(line, url, store_id) for line in trusted.lines]
    return replace(lock, trusted_keys=(*others, *mine))


def _show_keys(lock: "Lock", *, as_json: bool) -> None:
    if as_json:
        keys = [one.to_json() for one in lock.trusted_keys]
        print_json({"file": str(lock.path), "trusted_keys": keys})
        return
    for one in lock.trusted_keys:
        where = f"{one.store}, id {one.store_id}" if one.store else "every store"
        echo(f"{one.key} signs for {where}")


def _looked_up(text: str, data_dir: str | None) -> "Locked":
    """Returns the highest prepared version of a reference."""
    from my_datasets.resolving.lock import Locked
    from my_datasets.resolving.request import Request
    from my_datasets.resolving.resolve_prepared import resolve_request

    request = Request.of(text, use_lock=False)
    return Locked.of(resolve_request(request, data_dir, to_use=True).metadata)


def _check(lock: "Lock", reference: DatasetReference, data_dir: str | None) -> None:
    from my_datasets.resolving.request import Request
    from my_datasets.resolving.resolve_prepared import resolve_request

    if str(reference) not in lock.datasets:
        raise LockError(
            f"{str(reference)!r} is not in {lock.path}.", fix=f"my-datasets lock {reference}"
        )
    request = Request(reference, lock)
    resolve_request(request, data_dir, to_use=True).check_lock()
