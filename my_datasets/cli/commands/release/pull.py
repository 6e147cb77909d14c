"""`my-datasets pull`: downloads releases as prepared versions."""

from typing import TYPE_CHECKING, Any

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core import interruption

if TYPE_CHECKING:
    from my_datasets.publishing.install import Pulled
    from my_datasets.publishing.model.signing import TrustedKeys


@click.command("pull")
@click.argument("references", metavar="NAME[/CONFIG][:VERSION]...", nargs=-1, required=True)
@options.store_option("--from", reads=True)
@options.data_dir_option
@click.option("--splits", metavar="NAMES", help="Download only these splits, comma-separated.")
@click.option(
    "--overwrite", is_flag=True, help="Replace a prepared version that has different data."
)
@click.option(
    "--lock/--no-lock", "use_lock", default=True,
    help="Pull the versions in the project's lock.  [default: if there is a lock]",
)  # fmt: skip
@options.trusted_keys_option
@options.transfers_option("downloads")
@options.feature_imports_option
@options.json_option
def command(
    references: tuple[str, ...], store: str, data_dir: str | None, splits: str | None,
    trusted_keys: "TrustedKeys | None", as_json: bool, **how: Any,
) -> None:  # fmt: skip
    """Download releases as prepared versions that plain TFDS reads.

    A wildcard such as 1.*.* means the highest release that was not yanked. Every byte is verified
    before the version becomes visible. An interrupted download is resumed by running the same
    command again. Shards that another local version has are linked, not downloaded.

    Example: my-datasets pull digits:1.*.* --from https://data.example.org/datasets
    """
    from my_datasets.publishing.puller import pull

    names = tuple(filter(None, splits.split(","))) if splits is not None else None
    results = []
    for one in references:
        with (
            interruption.with_note("Downloaded files are kept."),
            output.transfer_progress(shown=not as_json) as report,
        ):
            done = pull(one, store, data_dir, splits=names, keys=trusted_keys, report=report, **how)
        results.append(done)
        if not as_json:
            _show(done)
    if as_json:
        output.print_json([done.to_json() for done in results])


def _show(done: "Pulled") -> None:
    received = f"{output.human_size(done.downloaded)} downloaded"
    linked = f", {output.human_size(done.linked)} from other versions" if done.linked else ""
    splits = f", only {', '.join(done.splits)}" if done.splits is not None else ""
    how = "already here" if done.was_there else f"{received}{linked}"
    output.console().print(
        output.bold(done.name), f": {how}{splits}, in {done.path}", sep="", soft_wrap=True
    )
