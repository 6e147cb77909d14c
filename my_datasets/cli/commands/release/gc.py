"""`my-datasets gc`: deletes unused files from a store."""

from pathlib import Path

import rich_click as click

from my_datasets.cli.options import ledger, sign_key_option, store_option, trusted_keys_option
from my_datasets.cli.output import LocalPath, echo, human_size, json_option, print_json

_DAY = 24 * 3600


@click.command("gc")
@store_option("--from", reads=False)
@click.option("--delete", is_flag=True, help="Delete the files instead of only listing them.")
@click.option("--yanked", is_flag=True, help="Include yanked releases.")
@click.option(
    "--keep", "locks", multiple=True, type=LocalPath(exists=True, dir_okay=False, path_type=Path),
    metavar="LOCK", help="Keep the releases in this lock. Repeatable.",
)  # fmt: skip
@click.option(
    "--older-than", type=click.FloatRange(min=0), default=7, show_default=True, metavar="DAYS",
    help="Minimum age of an abandoned upload.",
)  # fmt: skip
@sign_key_option
@trusted_keys_option
@json_option
def command(
    store: str,
    delete: bool,
    yanked: bool,
    locks: tuple[Path, ...],
    older_than: float,
    sign_key: Path | None,
    trusted_keys: Path | None,
    as_json: bool,
) -> None:
    """List unused files in a store, and delete them with --delete.

    These are abandoned uploads, and with --yanked, yanked releases that are in none of the given
    locks. The version number of a deleted release is never reused.

    Example: my-datasets gc --from gs://our-bucket/datasets --yanked --keep datasets.lock
    """
    from my_datasets.publishing.admin import collect_garbage
    from my_datasets.resolving.lock import Lock

    found = collect_garbage(
        ledger(store, sign_key=sign_key, trusted_keys=trusted_keys),
        delete=delete, yanked=yanked, locks=[Lock.read(path) for path in locks],
        older_than=older_than * _DAY,
    )  # fmt: skip
    if as_json:
        print_json({"deleted": delete, "garbage": [one.to_json() for one in found]})
        return
    for one in found:
        echo(f"{one.folder}: {human_size(one.bytes)} in {one.files} files, {one.reason}")
    total = human_size(sum(one.bytes for one in found))
    what = "deleted" if delete else "to be deleted with --delete"
    echo(f"{total} {what}" if found else "Nothing to delete.")
