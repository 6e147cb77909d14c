"""`my-datasets lock`: pins a project's references to exact versions and their content."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import LockError

if TYPE_CHECKING:
    from my_datasets.resolving.lock import Lock


@click.command("lock")
@click.argument("references", metavar="[NAME[/CONFIG][:VERSION]]...", nargs=-1)
@options.data_dir_option
@click.option(
    "--file", type=options.LocalPath(dir_okay=False, path_type=Path), default=Path("datasets.lock"),
    show_default=True, metavar="FILE", help="The lock file.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Only check prepared data against the lock.")
@options.file_option(
    "--trust", "KEYS", "Require stores to be signed by one of these public keys, one per line."
)
@click.option(
    "--from", "store", metavar="STORE", type=options.PathOrAddress(any_scheme=True),
    help="With --trust, apply it to this store only, and lock the store's id.",
)  # fmt: skip
@options.json_option
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
    from my_datasets.resolving.lock import Lock, Locked
    from my_datasets.resolving.resolver import Request, resolve_request

    if store is not None and trust is None:
        raise click.UsageError("--from needs --trust KEYS")
    old = Lock.read(file) if file.exists() else Lock(file)
    if trust is not None:
        old = _trusting(old, trust, store)
        old.write()
        if not references:
            _show_keys(old, as_json=as_json)
            return
    to_lock = [str(DatasetReference.parse(one)) for one in references] or list(old.datasets)
    if not to_lock:
        raise LockError(
            f"{file} has no references yet.",
            fix="name references as written in your code: my-datasets lock digits:1.*.*",
        )
    if check:
        for one in to_lock:
            _check(old, DatasetReference.parse(one), data_dir)
        found = {one: old.datasets[one] for one in to_lock}
    else:
        requests = {one: Request.of(one, use_lock=False) for one in to_lock}
        found = {
            one: Locked.of(resolve_request(request, data_dir, to_use=True).metadata)
            for one, request in requests.items()
        }
        replace(old, path=file, datasets={**old.datasets, **found}).write()
    if as_json:
        output.print_json({"file": str(file), "datasets": Lock(file, found).to_json()})
        return
    for text, locked in found.items():
        config = f"{locked.config}:" if locked.config else ""
        output.console().print(
            f"{text} is {config}{locked.version}, digest {locked.digest}", soft_wrap=True
        )


def _trusting(lock: "Lock", keys: Path, store: str | None) -> "Lock":
    """Returns a lock with new trusted keys for a store, or for every store."""
    from my_datasets.publishing.model.signing import TrustedKeys
    from my_datasets.resolving.lock import TrustedKey

    trusted = TrustedKeys.read(keys)
    url, store_id = "", ""
    if store is not None:
        client = options.catalog_client(store, trusted)
        url, store_id = client.store.url, client.required().store
    others = [one for one in lock.trusted_keys if one.store != url]
    new = [TrustedKey(line, url, store_id) for line in trusted.lines]
    return replace(lock, trusted_keys=(*others, *new))


def _show_keys(lock: "Lock", *, as_json: bool) -> None:
    if as_json:
        keys = [one.to_json() for one in lock.trusted_keys]
        output.print_json({"file": str(lock.path), "trusted_keys": keys})
        return
    for one in lock.trusted_keys:
        where = f"{one.store}, id {one.store_id}" if one.store else "every store"
        output.echo(f"{one.key} signs for {where}")


def _check(lock: "Lock", reference: DatasetReference, data_dir: str | None) -> None:
    from my_datasets.resolving.resolver import Request, resolve_request

    if str(reference) not in lock.datasets:
        raise LockError(
            f"{str(reference)!r} is not in {lock.path}.", fix=f"my-datasets lock {reference}"
        )
    resolve_request(Request(reference, lock), data_dir, to_use=True).check_lock()
