"""`my-datasets sign`: signs what is published already, and makes a store require it."""

from pathlib import Path

import rich_click as click

from my_datasets.cli.options import (
    ledger,
    sign_key_option,
    store_option,
    trusted_keys_option,
    valid_for_option,
)
from my_datasets.cli.output import LocalPath, console, json_option, print_json


@click.command("sign")
@click.argument("dataset", metavar="[NAME]", required=False)
@store_option("--to", reads=False)
@click.option(
    "--require/--no-require", default=None,
    help="From now on the store takes only what is signed, or takes all again.",
)  # fmt: skip
@click.option(
    "--add-key", type=LocalPath(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="A public key that signs for the store, too: whoever trusts your key trusts it.",
)  # fmt: skip
@click.option(
    "--revoke-key", type=LocalPath(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="A public key that does not count any more; what it signed is signed anew.",
)  # fmt: skip
@valid_for_option
@sign_key_option
@trusted_keys_option
@json_option
def command(
    dataset: str | None,
    store: str,
    require: bool | None,
    add_key: Path | None,
    revoke_key: Path | None,
    valid_for: float | None,
    sign_key: Path | None,
    trusted_keys: Path | None,
    as_json: bool,
) -> None:
    """Sign the releases of a dataset, or all in a store, by an Ed25519 key.

    You say by it that these bytes are those releases: pull and verify them first. Releases are
    signed as they are published by `my-datasets publish --sign-key FILE`. Whoever names
    --trusted-keys takes nothing else than what one of those keys has signed. Signing again renews
    what expires.

    Example: my-datasets sign --to gs://our-bucket/datasets --sign-key ~/.ssh/id_ed25519 --require
    """
    if sign_key is None:
        raise click.UsageError("name the key to sign by: --sign-key FILE")
    from my_datasets.publishing import admin
    from my_datasets.publishing.model.signing import TrustedKeys

    where = ledger(store, sign_key=sign_key, trusted_keys=trusted_keys)
    if valid_for is not None:
        where.set(valid_seconds=int(valid_for))
    # What expires from now on, or was signed by a key that goes, is signed anew in all datasets.
    only = dataset if valid_for is None and revoke_key is None else None
    found = admin.sign(where, only) if where.settings() is not None else []
    for line in TrustedKeys.read(add_key).lines if add_key is not None else ():
        admin.add_key(where, line)
    for line in TrustedKeys.read(revoke_key).lines if revoke_key is not None else ():
        admin.revoke_key(where, line)
    if require is not None:
        admin.require_signatures(where, required=require)
    settings = where.required()
    if as_json:
        print_json({
            "key": where.by, "requires_signatures": settings.requires_signatures,
            "expires": settings.expires,
            "releases": [one.to_json() for one in found],
        })  # fmt: skip
        return
    for one in found:
        console().print(f"{one.name} is signed by {where.by}", soft_wrap=True, markup=False)
    takes = "only what is signed" if settings.requires_signatures else "also what is not signed"
    console().print(f"{where.store.url} takes {takes}.", soft_wrap=True, markup=False)
    if settings.expires:
        until = f"What is signed there is valid until {settings.expires}; sign again to renew it."
        console().print(until, soft_wrap=True, markup=False)
