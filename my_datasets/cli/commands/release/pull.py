"""`my-datasets pull`: releases become prepared versions here."""

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.options import (
    feature_imports_option,
    progress,
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
from my_datasets.core import interruption

if TYPE_CHECKING:
    from my_datasets.publishing.install import Pulled


@click.command("pull")
@click.argument("references", metavar="NAME[/CONFIG][:VERSION]...", nargs=-1, required=True)
@store_option("--from", reads=True)
@data_dir_option
@click.option("--splits", metavar="NAMES", help="Only these splits, comma-separated.")
@click.option("--overwrite", is_flag=True, help="Replace other data under that version.")
@click.option(
    "--lock/--no-lock", "use_lock", default=True,
    help="Pull what the project's lock says.  [default: if there is a lock]",
)  # fmt: skip
@trusted_keys_option
@click.option(
    "--workers", type=click.IntRange(min=1), default=8, show_default=True, metavar="N",
    help="Files that are downloaded at the same time.",
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
    """Bring releases here, as prepared versions that any TFDS reads.

    A wildcard such as 1.*.* means the highest release that was not withdrawn. Every byte is
    verified before the version is there. When it was killed, the same command goes on where it
    was. Shards that other versions here have are not downloaded.

    Example: my-datasets pull digits:1.*.* --from https://data.example.org/datasets
    """
    from my_datasets.publishing.puller import pull

    keys = trusted(trusted_keys)
    wanted = tuple(filter(None, splits.split(","))) if splits is not None else None
    results = []
    for one in references:
        with (
            interruption.with_note("What was downloaded is kept."),
            progress(shown=not as_json) as tell,
        ):
            done = pull(
                one, store, data_dir, splits=wanted, overwrite=overwrite, use_lock=use_lock,
                keys=keys, workers=workers, report=tell,
            )  # fmt: skip
        results.append(done)
        if not as_json:
            _show(done)
    if as_json:
        print_json([done.to_json() for done in results])


def _show(done: "Pulled") -> None:
    came = f"{human_size(done.downloaded)} downloaded"
    linked = f", {human_size(done.linked)} from other versions" if done.linked else ""
    splits = f", only {', '.join(done.splits)}" if done.splits is not None else ""
    how = "was there" if done.was_there else f"{came}{linked}"
    console().print(
        bold(done.name),
        f": {how}{splits}, in {done.path}",
        sep="",
        soft_wrap=True,
    )
