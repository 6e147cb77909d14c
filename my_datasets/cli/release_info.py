"""Prints a release in a store, for `my-datasets info --from`."""

from typing import TYPE_CHECKING

from my_datasets.cli.output import bold, console, echo, human_size, plain

if TYPE_CHECKING:
    from my_datasets.exporting.version_summary import Feature
    from my_datasets.publishing.model.store_layout import Release
    from my_datasets.publishing.resolve_release import ReleaseDescription


def show(found: "ReleaseDescription") -> None:
    """Prints a release's metadata."""
    from rich.table import Table

    release, about = found.release, found.about
    table = Table.grid(padding=(0, 2))
    table.add_row("release", bold(found.name))
    table.add_row("store", plain(found.store))
    table.add_row("published", plain(release.published[:10]))
    table.add_row("size", plain(f"{human_size(release.bytes)} in {release.files:,} files"))
    table.add_row("digest", plain(release.digest))
    table.add_row("signature", plain(_signature(found)))
    for name, split in found.splits.items():
        size = f"{split.shards} shard(s), {human_size(split.bytes)}"
        table.add_row(plain(f"split {name}"), plain(f"{split.examples:,} examples in {size}"))
    for one in about.features:
        table.add_row(plain(f"feature {one.name}"), plain(_feature(one)))
    for version, other in reversed(found.versions.items()):
        table.add_row(plain(f"version {version}"), plain(_version(other)))
    facts = {
        "release notes": about.notes,
        "licence": about.licence,
        "homepage": " ".join(about.urls),
        "citation": about.citation,
        "description": about.description,
    }
    for label, text in facts.items():
        if text:
            table.add_row(label, plain(text))
    console().print(table)
    echo(f"To download it: my-datasets pull {found.name} --from {found.store}")


def _signature(found: "ReleaseDescription") -> str:
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
    note = f"; {one.description}" if one.description else ""
    return f"{one.kind}, {one.dtype}{shape}{classes}{several}{note}"


def _version(release: "Release") -> str:
    what = f"{release.state.value} {release.published[:10]}, {human_size(release.bytes)}"
    return f"{what}: {release.message}" if release.message else what
