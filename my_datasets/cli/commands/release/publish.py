"""`my-datasets publish`: publishes prepared versions as releases."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core import interruption

if TYPE_CHECKING:
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
def command(
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
    from my_datasets.verification.report import Level

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
            _show(done)
    if catalog is not None and not dry_run:
        from my_datasets.cli.commands.inspect.catalog import generate

        generate(store, catalog, trusted_keys or (by.public if by else None))
    if as_json:
        output.print_json([done.to_json() for done in results])


def _show(done: "Published") -> None:
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
