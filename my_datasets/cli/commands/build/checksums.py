"""`my-datasets checksums`: shows and records the checksums of a dataset's downloads."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core.json_types import JsonObject
from my_datasets.core.reference import DatasetReference

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


@click.command("checksums")
@click.argument("name", metavar="NAME[/CONFIG]")
@click.option(
    "--update", is_flag=True, help="Download the files and record their current checksums."
)
@options.data_dir_option
@options.download_dir_option
@options.mirror_option
@options.imports_option
@options.json_option
def command(
    name: str,
    update: bool,
    data_dir: str | None,
    download_dir: str | None,
    mirrors: Mapping[str, Sequence[str]],
    imports: str | None,
    as_json: bool,
) -> None:
    """Show the recorded sizes and SHA-256 of a dataset's downloads, or update them.

    With --update, the files of all configs, or of the given one, are downloaded and recorded, and
    changes are shown. If the changes affect the dataset's data, raise its VERSION.

    Example: my-datasets checksums digits
    """
    reference = DatasetReference.parse(name)
    output.quiet_tensorflow()
    options.import_modules(imports)
    from my_datasets.builders.find_builder import builders_from_code

    builders = list(builders_from_code(reference, data_dir=data_dir))
    before = _recorded(builders[0])
    if update:
        for builder in builders:
            if not hasattr(builder, "record_checksums"):
                raise click.ClickException(
                    f"{builder.name} is one of TFDS's own builders; TFDS maintains its checksums."
                )
            builder.record_checksums(download_dir=download_dir, mirrors=mirrors)
    after = _recorded(builders[0])
    rows = [
        {"url": url, **facts, "change": _change(before.get(url), facts) if update else None}
        for url, facts in sorted(after.items())
    ]
    if as_json:
        output.print_json(rows)
        return
    _show(rows, before)


def _recorded(builder: "tfds.core.DatasetBuilder") -> dict[str, JsonObject]:
    return {
        url: {"size": int(info.size), "sha256": info.checksum, "file_name": info.filename}
        for url, info in (type(builder).url_infos or {}).items()
    }


def _change(before: JsonObject | None, now: JsonObject) -> str:
    if before is None:
        return "new"
    same = (before["size"], before["sha256"]) == (now["size"], now["sha256"])
    return "same" if same else "changed"


def _show(rows: Sequence[JsonObject], before: Mapping[str, JsonObject]) -> None:
    out = output.console()
    if not rows:
        out.print("No checksums are recorded.")
    for row in rows:
        change = output.bold(f"  {row['change']}") if row["change"] else ""
        out.print(row["url"], change, sep="", soft_wrap=True)
        out.print(f"  {_said(row)}", soft_wrap=True)
        if row["change"] == "changed":
            out.print(f"  was: {_said(before[row['url']])}", soft_wrap=True)


def _said(facts: JsonObject) -> str:
    size = facts["size"]
    return f"{size:,} bytes ({output.human_size(size)}), SHA-256 {facts['sha256']}"
