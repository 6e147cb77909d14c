"""`my-datasets sign`: signs published releases, and manages a store's keys."""

from pathlib import Path

import rich_click as click

from my_datasets.cli.options import (
    ledger,
    sign_key_option,
    store_option,
    trusted_keys_option,
    valid_for_option,
)
from my_datasets.cli.output import LocalPath, echo, json_option, print_json


@click.command("sign")
@click.argument("dataset", metavar="[NAME]", required=False)
@store_option("--to", reads=False)
@click.option(
    "--require/--no-require", default=None,
    help="Make the store accept only signed releases, or any release.",
)  # fmt: skip
@click.option(
    "--add-key", type=LocalPath(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Let this public key sign for the store, too. Everyone who trusts your key trusts it.",
)  # fmt: skip
@click.option(
    "--revoke-key", type=LocalPath(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Revoke this public key, and re-sign what it signed.",
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
    """Sign a dataset's releases, or all releases in a store, with an Ed25519 key.

    Your signature states that these releases have the right bytes: pull and verify them first. To
    sign new releases, use `my-datasets publish --sign-key FILE`. Users with --trusted-keys accept
    only what one of their keys has signed. Sign again to renew signatures that expire.

    Example: my-datasets sign --to gs://our-bucket/datasets --sign-key ~/.ssh/id_ed25519 --require
    """
    if sign_key is None:
        raise click.UsageError("missing the key to sign with: --sign-key FILE")
    from my_datasets.publishing import admin
    from my_datasets.publishing.model.signing import TrustedKeys

    where = ledger(store, sign_key=sign_key, trusted_keys=trusted_keys)
    if valid_for is not None:
        where.set(valid_seconds=int(valid_for))
    # A new expiry or a revoked key affects all datasets.
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
        echo(f"{one.name} is signed by {where.by}")
    takes = "only signed releases" if settings.requires_signatures else "unsigned releases, too"
    echo(f"{where.store.url} accepts {takes}.")
    if settings.expires:
        echo(f"Signatures there expire on {settings.expires}; sign again to renew them.")
