"""`my-datasets publish`: publishes prepared versions as releases."""

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.options import (
    feature_imports_option,
    sign_key_option,
    signer,
    store_option,
    trusted,
    trusted_keys_option,
    valid_for_option,
)
from my_datasets.cli.output import (
    LocalPath,
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
    from my_datasets.publishing.upload import Published


@click.command("publish")
@click.argument("versions", metavar="[NAME[/CONFIG][:VERSION]|PATH]...", nargs=-1, required=True)
@store_option("--to", reads=False)
@data_dir_option
@click.option("--deep", is_flag=True, help="Also verify each example first.")
@click.option(
    "--version-gate/--no-version-gate",
    default=True,
    help="Refuse a version number that is too low for the changes since the previous release.  "
    "[default: refuse]",
)
@click.option("--note", default="", metavar="TEXT", help="A note for the store's history.")
@click.option(
    "--read-back", is_flag=True,
    help="Read every byte back from the store, and repair damaged files of published releases.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Verify and compare, but write nothing.")
@click.option(
    "--catalog", metavar="DIR", type=LocalPath(path_type=Path),
    help="Also update the store's catalog site in DIR, as my-datasets catalog does.",
)  # fmt: skip
@sign_key_option
@valid_for_option
@trusted_keys_option
@click.option(
    "--workers", type=click.IntRange(min=1), default=8, show_default=True, metavar="N",
    help="Number of parallel uploads.",
)  # fmt: skip
@feature_imports_option
@json_option
def command(
    versions: tuple[str, ...],
    store: str,
    data_dir: str | None,
    deep: bool,
    version_gate: bool,
    note: str,
    read_back: bool,
    dry_run: bool,
    catalog: Path | None,
    sign_key: Path | None,
    valid_for: float | None,
    trusted_keys: Path | None,
    workers: int,
    as_json: bool,
) -> None:
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
    keys, by = trusted(trusted_keys), signer(sign_key)
    results = []
    for one in versions:
        with (
            interruption.with_note("Uploaded files are kept."),
            transfer_progress(shown=not as_json) as report,
        ):
            done = publish(
                one, store, data_dir=data_dir, level=Level.DEEP if deep else Level.BYTES,
                version_gate=version_gate, dry_run=dry_run, signer=by, keys=keys, note=note,
                read_back=read_back, valid_for=valid_for, workers=workers, report=report,
            )  # fmt: skip
        results.append(done)
        if not as_json:
            _show(done)
    if catalog is not None and not dry_run:
        from my_datasets.cli.commands.inspect.catalog import made

        made(store, catalog, keys or (by.public if by else None))
    if as_json:
        print_json([done.to_json() for done in results])


def _show(done: "Published") -> None:
    note = f": {done.note}" if done.note else ""
    new = f", {human_size(done.uploaded)} new" if done.uploaded != done.bytes else ""
    console().print(
        bold(done.name),
        f" {done.outcome.value}{note} ({human_size(done.bytes)} in "
        f"{done.files} files{new}, {done.store})\n"
        f"digest {done.digest}",
        sep="",
        soft_wrap=True,
    )
