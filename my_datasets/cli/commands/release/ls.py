"""`my-datasets ls`: lists the releases in a store."""

from pathlib import Path

import rich_click as click

from my_datasets.cli.options import ledger, store_option, trusted_keys_option
from my_datasets.cli.output import console, human_size, json_option, print_json


@click.command("ls")
@click.argument("dataset", metavar="[NAME]", required=False)
@store_option("--from", reads=True)
@trusted_keys_option
@json_option
def command(dataset: str | None, store: str, trusted_keys: Path | None, as_json: bool) -> None:
    """List the releases in a store, or those of one dataset.

    Example: my-datasets ls digits --from gs://our-bucket/datasets
    """
    from my_datasets.publishing.admin import releases
    from my_datasets.publishing.model.store_layout import ReleaseState

    found = releases(ledger(store, trusted_keys=trusted_keys), dataset)
    if as_json:
        print_json([one.to_json() for one in found])
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in [("release", "left"), ("published", "left"), ("size", "right"),
                            ("files", "right"), ("digest", "left"), ("", "left")]:  # fmt: skip
        table.add_column(column, justify=justify, no_wrap=column != "")  # type: ignore[arg-type]
    for one in found:
        mine = one.release
        state = "" if mine.state is ReleaseState.PUBLISHED else mine.state.value
        message = f"{state}: {mine.message}" if mine.message else state
        table.add_row(
            one.name, mine.published[:10], human_size(mine.bytes), f"{mine.files:,}",
            mine.digest[:16], message,
        )  # fmt: skip
    console().print(table)
