"""How a release looks that is in a store, for `my-datasets info --from`."""

from typing import TYPE_CHECKING, Any

import rich_click as click

from my_datasets.cli.output import console, human_size

if TYPE_CHECKING:
    from my_datasets.exporting.features import Feature
    from my_datasets.publishing.describing import Described
    from my_datasets.publishing.index import Release


def show(found: "Described") -> None:
    """Prints what is known of a release."""
    from rich.table import Table

    release, about = found.release, found.about
    table = Table.grid(padding=(0, 2))
    table.add_row("release", _text(found.name, "bold"))
    table.add_row("store", _text(found.store))
    table.add_row("published", _text(release.published[:10]))
    table.add_row("size", _text(f"{human_size(release.bytes)} in {release.files:,} files"))
    table.add_row("digest", _text(release.digest))
    table.add_row("signature", _text(_signature(found)))
    for name, split in found.splits.items():
        size = f"{split.shards} shard(s), {human_size(split.bytes)}"
        table.add_row(_text(f"split {name}"), _text(f"{split.examples:,} examples in {size}"))
    for one in about.features:
        table.add_row(_text(f"feature {one.name}"), _text(_feature(one)))
    for version, other in reversed(found.versions.items()):
        table.add_row(_text(f"version {version}"), _text(_version(other)))
    told = {
        "release notes": about.notes,
        "licence": about.licence,
        "homepage": " ".join(about.urls),
        "citation": about.citation,
        "description": about.description,
    }
    for label, text in told.items():
        if text:
            table.add_row(label, _text(text))
    console().print(table)
    click.echo(f"To bring it here: my-datasets pull {found.name} --from {found.store}")


def _signature(found: "Described") -> str:
    keys = ", ".join(one.key for one in found.release.signatures)
    if not keys:
        return "none"
    return f"of {keys}" + ("" if found.is_trusted else ", not checked: see --trusted-keys")


def _feature(one: "Feature") -> str:
    names = f": {', '.join(one.class_names)}" if one.class_names else ""
    more = ", ..." if names and one.classes > len(one.class_names) else ""
    classes = f", {one.classes:,} classes{names}{more}" if one.classes else ""
    several = ", any number of them" if one.is_in_sequence else ""
    shape = f" {one.shape}" if one.shape else ""
    told = f"; {one.description}" if one.description else ""
    return f"{one.kind}, {one.dtype}{shape}{classes}{several}{told}"


def _version(release: "Release") -> str:
    what = f"{release.state.value} {release.published[:10]}, {human_size(release.bytes)}"
    return f"{what}: {release.message}" if release.message else what


def _text(text: str, style: str = "") -> Any:
    """Returns a text of which a terminal obeys nothing, whoever wrote it."""
    from rich.text import Text

    plain = "".join(one for one in text if one.isprintable() or one == "\n")
    return Text(plain, style, overflow="fold")
