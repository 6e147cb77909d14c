"""`my-datasets publish`: prepared versions become releases."""

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.options import (
    feature_imports_option,
    progress,
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
from my_datasets.core import interruption

if TYPE_CHECKING:
    from my_datasets.publishing.upload import Published


@click.command("publish")
@click.argument("versions", metavar="[NAME[/CONFIG][:VERSION]|PATH]...", nargs=-1, required=True)
@store_option("--to", reads=False)
@data_dir_option
@click.option("--deep", is_flag=True, help="Verify each example before, too.")
@click.option(
    "--version-gate/--no-version-gate",
    default=True,
    help="Refuse a version whose number says less than what changed since the release before it.  "
    "[default: refuse]",
)
@click.option("--note", default="", metavar="TEXT", help="What the store's history says of it.")
@click.option(
    "--read-back", is_flag=True,
    help="Read every byte again where it lies; of what is published already, put back the damaged.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Verify and compare only; write nothing.")
@click.option(
    "--catalog", metavar="DIR", type=LocalPath(path_type=Path),
    help="Make or renew the site there that my-datasets catalog makes of the store.",
)  # fmt: skip
@sign_key_option
@valid_for_option
@trusted_keys_option
@click.option(
    "--workers", type=click.IntRange(min=1), default=8, show_default=True, metavar="N",
    help="Files that are uploaded at the same time.",
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
    """Make prepared versions releases: verified, whole, and never changed again.

    Nothing is visible in the store before all of it is. When it was killed, the same command goes
    on where it was. Other data under a published version are refused, always.

    Example: my-datasets publish digits:1.0.0 --to gs://our-bucket/datasets
    """
    from my_datasets.publishing.publisher import publish
    from my_datasets.verification.report import Level

    if valid_for is not None and sign_key is None:
        raise click.UsageError("--valid-for is about signatures: name the key, --sign-key FILE")
    keys, by = trusted(trusted_keys), signer(sign_key)
    results = []
    for one in versions:
        with (
            interruption.with_note("Files that were uploaded are kept."),
            progress(shown=not as_json) as tell,
        ):
            done = publish(
                one, store, data_dir=data_dir, level=Level.DEEP if deep else Level.BYTES,
                version_gate=version_gate, dry_run=dry_run, signer=by, keys=keys, note=note,
                read_back=read_back, valid_for=valid_for, workers=workers, report=tell,
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
    new = f", {human_size(done.uploaded)} new there" if done.uploaded != done.bytes else ""
    console().print(
        bold(done.name),
        f" {done.outcome.value}{note} ({human_size(done.bytes)} in "
        f"{done.files} files{new}, {done.store})\n"
        f"digest {done.digest}",
        sep="",
        soft_wrap=True,
    )
