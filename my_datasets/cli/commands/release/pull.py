"""`my-datasets pull`: downloads releases as prepared versions."""

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.options import (
    feature_imports_option,
    store_option,
    trusted,
    trusted_keys_option,
)
from my_datasets.cli.output import (
    bold,
    console,
    data_dir_option,
    human_size,
    json_option,
    print_json,
)
from my_datasets.cli.progress import transfer_progress
from my_datasets.core import interruption

if TYPE_CHECKING:
    from my_datasets.publishing.install import Pulled


@click.command("pull")
@click.argument("references", metavar="NAME[/CONFIG][:VERSION]...", nargs=-1, required=True)
@store_option("--from", reads=True)
@data_dir_option
@click.option("--splits", metavar="NAMES", help="Download only these splits, comma-separated.")
@click.option(
    "--overwrite", is_flag=True, help="Replace a prepared version that has different data."
)
@click.option(
    "--lock/--no-lock", "use_lock", default=True,
    help="Pull the versions in the project's lock.  [default: if there is a lock]",
)  # fmt: skip
@trusted_keys_option
@click.option(
    "--workers", type=click.IntRange(min=1), default=8, show_default=True, metavar="N",
    help="Number of parallel downloads.",
)  # fmt: skip
@feature_imports_option
@json_option
def command(
    references: tuple[str, ...],
    store: str,
    data_dir: str | None,
    splits: str | None,
    overwrite: bool,
    use_lock: bool,
    trusted_keys: Path | None,
    workers: int,
    as_json: bool,
) -> None:
    """Download releases as prepared versions that plain TFDS reads.

    A wildcard such as 1.*.* means the highest release that was not yanked. Every byte is verified
    before the version becomes visible. An interrupted download is resumed by running the same
    command again. Shards that another local version has are linked, not downloaded.

    Example: my-datasets pull digits:1.*.* --from https://data.example.org/datasets
    """
    from my_datasets.publishing.puller import pull

    keys = trusted(trusted_keys)
    wanted = tuple(filter(None, splits.split(","))) if splits is not None else None
    results = []
    for one in references:
        with (
            interruption.with_note("Downloaded files are kept."),
            transfer_progress(shown=not as_json) as report,
        ):
            done = pull(
                one, store, data_dir, splits=wanted, overwrite=overwrite, use_lock=use_lock,
                keys=keys, workers=workers, report=report,
            )  # fmt: skip
        results.append(done)
        if not as_json:
            _show(done)
    if as_json:
        print_json([done.to_json() for done in results])


def _show(done: "Pulled") -> None:
    received = f"{human_size(done.downloaded)} downloaded"
    linked = f", {human_size(done.linked)} from other versions" if done.linked else ""
    splits = f", only {', '.join(done.splits)}" if done.splits is not None else ""
    how = "already here" if done.was_there else f"{received}{linked}"
    console().print(
        bold(done.name),
        f": {how}{splits}, in {done.path}",
        sep="",
        soft_wrap=True,
    )
