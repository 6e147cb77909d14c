"""`my-datasets publish` and `my-datasets pull`: upload and download releases."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core import interruption

if TYPE_CHECKING:
    from my_datasets.publishing.install import Pulled
    from my_datasets.publishing.model.signing import TrustedKeys
    from my_datasets.publishing.upload import Published


@click.command("publish")
@click.argument("versions", metavar="[NAME[/CONFIG][:VERSION]|PATH]...", nargs=-1, required=True)
@options.store_option("--to", reads=False)
@options.data_dir_option
@click.option("--deep", is_flag=True, help="Also verify each example first.")
@options.version_gate_option("release")
@click.option("--note", default="", metavar="TEXT", help="A note for the store's history.")
@click.option(
    "--read-back", is_flag=True,
    help="Read every byte back from the store, and repair damaged files of published releases.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Verify and compare, but write nothing.")
@click.option(
    "--catalog", metavar="DIR", type=options.LocalPath(path_type=Path),
    help="Also update the store's catalog site in DIR, as my-datasets catalog does.",
)  # fmt: skip
@options.sign_key_option
@options.valid_for_option
@options.trusted_keys_option
@options.transfers_option("uploads")
@options.feature_imports_option
@options.json_option
def publish_command(
    versions: tuple[str, ...], store: str, deep: bool, dry_run: bool, catalog: Path | None,
    sign_key: Path | None, valid_for: float | None, trusted_keys: "TrustedKeys | None",
    as_json: bool, **how: Any,
) -> None:  # fmt: skip
    """Publish prepared versions as immutable releases.

    Each version is verified first, and becomes visible in the store all at once. An interrupted
    upload is resumed by running the same command again. A published version can never be replaced
    by different data.

    Example: my-datasets publish digits:1.0.0 --to gs://our-bucket/datasets
    """
    from my_datasets.publishing.publisher import publish
    from my_datasets.verification.verifier import Level

    if valid_for is not None and sign_key is None:
        raise click.UsageError("--valid-for needs --sign-key FILE")
    by = options.signer(sign_key)
    results = []
    for one in versions:
        with (
            interruption.with_note("Uploaded files are kept."),
            output.transfer_progress(shown=not as_json) as report,
        ):
            done = publish(
                one, store, level=Level.DEEP if deep else Level.BYTES, dry_run=dry_run, signer=by,
                keys=trusted_keys, valid_for=valid_for, report=report, **how,
            )  # fmt: skip
        results.append(done)
        if not as_json:
            _show_published(done)
    if catalog is not None and not dry_run:
        from my_datasets.cli.commands.inspect.catalog import generate

        generate(store, catalog, trusted_keys or (by.public if by else None))
    if as_json:
        output.print_json([done.to_json() for done in results])


def _show_published(done: "Published") -> None:
    note = f": {done.note}" if done.note else ""
    new = f", {output.human_size(done.uploaded)} new" if done.uploaded != done.bytes else ""
    output.console().print(
        output.bold(done.name),
        f" {done.outcome.value}{note} ({output.human_size(done.bytes)} in "
        f"{done.files} files{new}, {done.store})\n"
        f"digest {done.digest}",
        sep="",
        soft_wrap=True,
    )


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
def pull_command(
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
            _show_pulled(done)
    if as_json:
        output.print_json([done.to_json() for done in results])


def _show_pulled(done: "Pulled") -> None:
    received = f"{output.human_size(done.downloaded)} downloaded"
    linked = f", {output.human_size(done.linked)} from other versions" if done.linked else ""
    splits = f", only {', '.join(done.splits)}" if done.splits is not None else ""
    how = "already here" if done.was_there else f"{received}{linked}"
    output.console().print(
        output.bold(done.name), f": {how}{splits}, in {done.path}", sep="", soft_wrap=True
    )
