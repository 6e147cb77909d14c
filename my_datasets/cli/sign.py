"""`my-datasets sign`: signs what is published already, and makes a store require it."""

from pathlib import Path

import rich_click as click

from my_datasets.cli.output import console, json_option, print_json
from my_datasets.cli.stores import ledger, sign_key_option, store_option, trusted_keys_option


@click.command("sign")
@click.argument("dataset", metavar="[NAME]", required=False)
@store_option("--to", reads=False)
@click.option(
    "--require/--no-require", default=None,
    help="From now on the store takes only what is signed, or takes all again.",
)  # fmt: skip
@sign_key_option
@trusted_keys_option
@json_option
def command(
    dataset: str | None,
    store: str,
    require: bool | None,
    sign_key: Path | None,
    trusted_keys: Path | None,
    as_json: bool,
) -> None:
    """Sign the releases of a dataset, or all in a store, by an Ed25519 key.

    You say by it that these bytes are those releases: pull and verify them first. Releases are
    signed as they are published by `my-datasets publish --sign-key FILE`. Whoever names
    --trusted-keys takes nothing else than what one of those keys has signed.

    Example: my-datasets sign --to gs://our-bucket/datasets --sign-key ~/.ssh/id_ed25519 --require
    """
    if sign_key is None:
        raise click.UsageError("name the key to sign by: --sign-key FILE")
    from my_datasets.publishing.keeping import require_signatures, sign

    where = ledger(store, sign_key=sign_key, trusted_keys=trusted_keys)
    found = sign(where, dataset) if where.settings() is not None else []
    if require is not None:
        require_signatures(where, required=require)
    settings = where.required()
    if as_json:
        print_json({
            "key": where.by, "requires_signatures": settings.requires_signatures,
            "releases": [one.to_json() for one in found],
        })  # fmt: skip
        return
    for one in found:
        console().print(f"{one.name} is signed by {where.by}", soft_wrap=True, markup=False)
    takes = "only what is signed" if settings.requires_signatures else "also what is not signed"
    console().print(f"{where.store.url} takes {takes}.", soft_wrap=True, markup=False)
