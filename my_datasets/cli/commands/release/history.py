"""`my-datasets history`: the log of a dataset's releases."""

from dataclasses import asdict
from pathlib import Path

import rich_click as click

from my_datasets.cli.options import ledger, store_option, trusted_keys_option
from my_datasets.cli.output import echo, json_option, print_json


@click.command("history")
@click.argument("dataset", metavar="NAME")
@store_option("--from", reads=True)
@trusted_keys_option
@json_option
def command(dataset: str, store: str, trusted_keys: Path | None, as_json: bool) -> None:
    """Show when a dataset's releases were published, yanked, signed and deleted.

    Example: my-datasets history digits --from gs://our-bucket/datasets
    """
    from my_datasets.publishing.admin import history

    found = history(ledger(store, trusted_keys=trusted_keys), dataset)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    for one in found:
        by = f" by {one.by}" if one.by else ""
        note = f": {one.note}" if one.note else ""
        echo(f"{one.serial:4} {one.time} {one.action} {one.release}{by}{note}")
