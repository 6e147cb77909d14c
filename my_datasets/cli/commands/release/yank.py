"""`my-datasets yank`: withdraws a release."""

from pathlib import Path

import rich_click as click

from my_datasets.cli.options import ledger, sign_key_option, store_option, trusted_keys_option
from my_datasets.cli.output import echo, json_option, print_json


@click.command("yank")
@click.argument("reference", metavar="NAME[/CONFIG]:VERSION")
@store_option("--from", reads=False)
@click.option("--message", "-m", metavar="TEXT", help="The reason, and what to use instead.")
@click.option("--undo", is_flag=True, help="Undo an earlier yank.")
@sign_key_option
@trusted_keys_option
@json_option
def command(
    reference: str,
    store: str,
    message: str | None,
    undo: bool,
    sign_key: Path | None,
    trusted_keys: Path | None,
    as_json: bool,
) -> None:
    """Withdraw a release.

    Wildcards then skip it, and loading it by its exact version fails with your message. Its files
    stay in the store, so that models trained on them can still be investigated.

    Example: my-datasets yank digits:1.0.0 --from gs://our-bucket/datasets -m "Wrong; use 1.0.1."
    """
    if undo == (message is not None):
        raise click.UsageError("give either a --message or --undo")
    from my_datasets.publishing.admin import unyank, yank

    where = ledger(store, sign_key=sign_key, trusted_keys=trusted_keys)
    done = unyank(where, reference) if undo else yank(where, reference, message or "")
    if as_json:
        print_json(done.to_json())
        return
    reason = f": {done.release.message}" if done.release.message else ""
    echo(f"{done.name} is {done.release.state.value}{reason}")
