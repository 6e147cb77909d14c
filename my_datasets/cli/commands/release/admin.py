"""`my-datasets gc`, `history`, `ls`, `sign` and `yank`: manage the releases in a store."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli import options, output

if TYPE_CHECKING:
    from my_datasets.publishing.model.signing import TrustedKeys


@click.command("gc")
@options.store_option("--from", reads=False)
@click.option("--delete", is_flag=True, help="Delete the files instead of only listing them.")
@click.option("--yanked", is_flag=True, help="Include yanked releases.")
@options.file_option(
    "--keep locks", "LOCK", "Keep the releases in this lock. Repeatable.", multiple=True
)
@click.option(
    "--older-than", type=click.FloatRange(min=0), default=7, show_default=True, metavar="DAYS",
    help="Minimum age of an abandoned upload.",
)  # fmt: skip
@options.sign_key_option
@options.trusted_keys_option
@options.json_option
def gc_command(
    store: str, delete: bool, yanked: bool, locks: tuple[Path, ...], older_than: float,
    sign_key: Path | None, trusted_keys: "TrustedKeys | None", as_json: bool,
) -> None:  # fmt: skip
    """List unused files in a store, and delete them with --delete.

    These are abandoned uploads, and with --yanked, yanked releases that are in none of the given
    locks. The version number of a deleted release is never reused.

    Example: my-datasets gc --from gs://our-bucket/datasets --yanked --keep datasets.lock
    """
    from my_datasets.publishing.admin import collect_garbage
    from my_datasets.resolving.lock import Lock

    found = collect_garbage(
        options.catalog_client(store, trusted_keys, sign_key),
        delete=delete, yanked=yanked, locks=[Lock.read(path) for path in locks],
        older_than=older_than * 24 * 3600,
    )  # fmt: skip
    if as_json:
        output.print_json({"deleted": delete, "garbage": [one.to_json() for one in found]})
        return
    for one in found:
        output.echo(
            f"{one.folder}: {output.human_size(one.bytes)} in {one.files} files, {one.reason}"
        )
    total = output.human_size(sum(one.bytes for one in found))
    what = "deleted" if delete else "to be deleted with --delete"
    output.echo(f"{total} {what}" if found else "Nothing to delete.")


@click.command("history")
@click.argument("dataset", metavar="NAME")
@options.store_option("--from", reads=True)
@options.trusted_keys_option
@options.json_option
def history_command(
    dataset: str, store: str, trusted_keys: "TrustedKeys | None", as_json: bool
) -> None:
    """Show when a dataset's releases were published, yanked, signed and deleted.

    Example: my-datasets history digits --from gs://our-bucket/datasets
    """
    from my_datasets.publishing.admin import history

    found = history(options.catalog_client(store, trusted_keys), dataset)
    if as_json:
        output.print_json([asdict(one) for one in found])
        return
    for one in found:
        by = f" by {one.by}" if one.by else ""
        note = f": {one.note}" if one.note else ""
        output.echo(f"{one.serial:4} {one.time} {one.action} {one.release}{by}{note}")


@click.command("ls")
@click.argument("dataset", metavar="[NAME]", required=False)
@options.store_option("--from", reads=True)
@options.trusted_keys_option
@options.json_option
def ls_command(
    dataset: str | None, store: str, trusted_keys: "TrustedKeys | None", as_json: bool
) -> None:
    """List the releases in a store, or those of one dataset.

    Example: my-datasets ls digits --from gs://our-bucket/datasets
    """
    from my_datasets.publishing.admin import releases
    from my_datasets.publishing.model.store_layout import ReleaseState

    found = releases(options.catalog_client(store, trusted_keys), dataset)
    if as_json:
        output.print_json([one.to_json() for one in found])
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in [("release", "left"), ("published", "left"), ("size", "right"),
                            ("files", "right"), ("digest", "left"), ("", "left")]:  # fmt: skip
        table.add_column(column, justify=justify, no_wrap=column != "")  # type: ignore[arg-type]
    for named in found:
        one = named.release
        state = "" if one.state is ReleaseState.PUBLISHED else one.state.value
        message = f"{state}: {one.message}" if one.message else state
        size = output.human_size(one.bytes)
        table.add_row(
            named.name, one.published[:10], size, f"{one.files:,}", one.digest[:16], message
        )
    output.console().print(table)


@click.command("sign")
@click.argument("dataset", metavar="[NAME]", required=False)
@options.store_option("--to", reads=False)
@click.option(
    "--require/--no-require", default=None,
    help="Make the store accept only signed releases, or any release.",
)  # fmt: skip
@options.file_option(
    "--add-key", "FILE",
    "Let this public key sign for the store, too. Everyone who trusts your key trusts it.",
)  # fmt: skip
@options.file_option("--revoke-key", "FILE", "Revoke this public key, and re-sign what it signed.")
@options.valid_for_option
@options.sign_key_option
@options.trusted_keys_option
@options.json_option
def sign_command(
    dataset: str | None, store: str, require: bool | None, add_key: Path | None,
    revoke_key: Path | None, valid_for: float | None, sign_key: Path | None,
    trusted_keys: "TrustedKeys | None", as_json: bool,
) -> None:  # fmt: skip
    """Sign a dataset's releases, or all releases in a store, with an Ed25519 key.

    Your signature states that these releases have the right bytes: pull and verify them first. To
    sign new releases, use `my-datasets publish --sign-key FILE`. Users with --trusted-keys accept
    only what one of their keys has signed. Sign again to renew signatures that expire.

    Example: my-datasets sign --to gs://our-bucket/datasets --sign-key ~/.ssh/id_ed25519 --require
    """
    if sign_key is None:
        raise click.UsageError("missing the key to sign with: --sign-key FILE")
    from my_datasets.publishing import admin
    from my_datasets.publishing.model.signing import TrustedKeys

    where = options.catalog_client(store, trusted_keys, sign_key)
    if valid_for is not None:
        where.set(valid_seconds=int(valid_for))
    # A new expiry or a revoked key affects all datasets.
    only = dataset if valid_for is None and revoke_key is None else None
    found = admin.sign(where, only) if where.settings() is not None else []
    for line in TrustedKeys.read(add_key).lines if add_key is not None else ():
        admin.add_key(where, line)
    for line in TrustedKeys.read(revoke_key).lines if revoke_key is not None else ():
        admin.revoke_key(where, line)
    if require is not None:
        admin.require_signatures(where, required=require)
    settings = where.required()
    if as_json:
        output.print_json({
            "key": where.by, "requires_signatures": settings.requires_signatures,
            "expires": settings.expires,
            "releases": [one.to_json() for one in found],
        })  # fmt: skip
        return
    for one in found:
        output.echo(f"{one.name} is signed by {where.by}")
    takes = "only signed releases" if settings.requires_signatures else "unsigned releases, too"
    output.echo(f"{where.store.url} accepts {takes}.")
    if settings.expires:
        output.echo(f"Signatures there expire on {settings.expires}; sign again to renew them.")


@click.command("yank")
@click.argument("reference", metavar="NAME[/CONFIG]:VERSION")
@options.store_option("--from", reads=False)
@click.option("--message", "-m", metavar="TEXT", help="The reason, and what to use instead.")
@click.option("--undo", is_flag=True, help="Undo an earlier yank.")
@options.sign_key_option
@options.trusted_keys_option
@options.json_option
def yank_command(
    reference: str, store: str, message: str | None, undo: bool, sign_key: Path | None,
    trusted_keys: "TrustedKeys | None", as_json: bool,
) -> None:  # fmt: skip
    """Withdraw a release.

    Wildcards then skip it, and loading it by its exact version fails with your message. Its files
    stay in the store, so that models trained on them can still be investigated.

    Example: my-datasets yank digits:1.0.0 --from gs://our-bucket/datasets -m "Wrong; use 1.0.1."
    """
    if undo == (message is not None):
        raise click.UsageError("give either a --message or --undo")
    from my_datasets.publishing.admin import unyank, yank

    where = options.catalog_client(store, trusted_keys, sign_key)
    done = unyank(where, reference) if undo else yank(where, reference, message or "")
    if as_json:
        output.print_json(done.to_json())
        return
    reason = f": {done.release.message}" if done.release.message else ""
    output.echo(f"{done.name} is {done.release.state.value}{reason}")
