"""`my-datasets info`: shows a dataset's metadata."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core.json_types import JsonObject
from my_datasets.core.reference import DatasetReference
from my_datasets.metadata import layout
from my_datasets.storage import addresses
from my_datasets.storage.user_folders import user_folders

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

    from my_datasets.exporting.version_summary import Feature
    from my_datasets.publishing.model.signing import TrustedKeys
    from my_datasets.publishing.model.store_layout import Release
    from my_datasets.publishing.resolve_release import ReleaseDescription


def show_release(found: "ReleaseDescription") -> None:
    """Prints a release's metadata."""
    release, about = found.release, found.about
    rows = [
        ("store", found.store),
        ("published", release.published[:10]),
        ("size", f"{output.human_size(release.bytes)} in {release.files:,} files"),
        ("digest", release.digest),
        ("signature", _signature(found)),
    ]
    for name, split in found.splits.items():
        rows.append((f"split {name}", _split(split.examples, split.shards, split.bytes)))
    rows += [(f"feature {one.name}", _feature(one)) for one in about.features]
    for version, other in reversed(found.versions.items()):
        rows.append((f"version {version}", _version(other)))
    rows += [
        ("release notes", about.notes),
        ("licence", about.licence),
        ("homepage", " ".join(about.urls)),
        ("citation", about.citation),
        ("description", about.description),
    ]
    _print_facts(("release", found.name), rows)
    output.echo(f"To download it: my-datasets pull {found.name} --from {found.store}")


def _print_facts(title: tuple[str, str], rows: Iterable[tuple[str, str]]) -> None:
    """Prints labels and texts as a table, without those that have no text."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_row(title[0], output.bold(title[1]))
    for label, text in rows:
        if text:
            table.add_row(output.plain(label), output.plain(text))
    output.console().print(table)


def _split(examples: int, shards: int, size: int) -> str:
    return f"{examples:,} examples in {shards} shard(s), {output.human_size(size)}"


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
    what = f"{release.state.value} {release.published[:10]}, {output.human_size(release.bytes)}"
    return f"{what}: {release.message}" if release.message else what


_REFERENCE = "NAME[/CONFIG][:VERSION]"


@click.command("info")
@click.argument("reference", metavar=f"[{_REFERENCE}]", required=False)
@options.data_dir_option_of(options.PathOrAddress("gs"))
@options.imports_option
@click.option("--fingerprint", is_flag=True, help="Show which source code the fingerprint covers.")
@click.option("--paths", is_flag=True, help="Show where this user's state, cache and settings are.")
@options.store_option("--from", reads=True, required=False)
@options.trusted_keys_option
@options.json_option
def command(
    reference: str | None,
    data_dir: str | None,
    imports: str | None,
    fingerprint: bool,
    paths: bool,
    store: str | None,
    trusted_keys: "TrustedKeys | None",
    as_json: bool,
) -> None:
    """Show a dataset's features, splits, versions, license and location.

    A wildcard means the newest prepared version that matches, else the newest that the code builds.

    With --from, shows the release in a store that my-datasets pull would download. Only its
    metadata is downloaded and verified.

    With --fingerprint, shows which names in each module of the builder's package affect its
    fingerprint: prepared data becomes stale when they change. Other modules have no effect.

    With --paths, no dataset is named: it shows the folders in which this package keeps what it
    verified or decided (state), what it can make or download again (cache), and what you wrote
    (settings).

    Example: my-datasets info digits:1.*.*

    Example: my-datasets info digits --fingerprint

    Example: my-datasets info digits:1.*.* --from https://data.example.org/datasets

    Example: my-datasets info --paths
    """
    if paths:
        if reference or store or data_dir or imports or fingerprint:
            raise click.UsageError("--paths takes no dataset, and no option but --json.")
        folders = {kind: str(path) for kind, path in user_folders().items()}
        if as_json:
            output.print_json(folders)
            return
        for kind, path in folders.items():
            output.echo(f"{kind:<10}{path}")
        return
    if reference is None:
        raise click.UsageError(f"Missing argument {_REFERENCE!r}.")
    if store is not None:
        if data_dir or imports or fingerprint:
            raise click.UsageError(
                "--from cannot be combined with --data-dir, --imports or --fingerprint."
            )
        from my_datasets.publishing.resolve_release import describe

        release = describe(reference, store, keys=trusted_keys)
        if as_json:
            output.print_json(release.to_json())
        else:
            show_release(release)
        return
    parsed = DatasetReference.parse(reference)
    if data_dir:
        output.reading_dir(data_dir)
    output.quiet_tensorflow()
    options.import_modules(imports)
    from my_datasets.builders.find_builder import find_builder
    from my_datasets.resolving.resolver import Request

    builder = find_builder(Request.of(parsed).exact, data_dir=data_dir)
    if fingerprint:
        counting = _fingerprint(builder)
        if as_json:
            output.print_json(counting)
        else:
            _show_fingerprint(counting)
        return
    facts = {**_facts(builder), "versions": _versions(builder, data_dir)}
    if as_json:
        output.print_json(facts)
    else:
        _show(facts)


def _fingerprint(builder: "tfds.core.DatasetBuilder") -> JsonObject:
    """Returns what is in a builder's fingerprint, and what of its modules is not."""
    from my_datasets.builders import code_fingerprint

    parts = [
        {
            "module": part.module, "file": part.file, "whole": part.is_whole,
            "names": list(part.names), "left_out": list(part.left_out), "sha256": part.sha256,
        }
        for part in code_fingerprint.source_parts(type(builder))
    ]  # fmt: skip
    return {
        "name": builder.name,
        "config": builder.builder_config_name,
        "version": str(builder.version),
        "fingerprint": code_fingerprint.fingerprint(builder),
        "source": parts,
    }


def _show_fingerprint(found: JsonObject) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, value in found["fingerprint"].items():
        if not name.startswith("source of "):
            table.add_row(name, Text(value))
    for part in found["source"]:
        table.add_row(f"module {part['module']}", Text(part["sha256"], "bold"))
        names = "all of it" if part["whole"] else ", ".join(part["names"]) or "what it imports"
        table.add_row("  included", Text(names))
        if part["left_out"]:
            table.add_row("  excluded", Text(", ".join(part["left_out"])))
    output.console().print(table)
    output.echo(
        "Comments, formatting, docstrings, descriptions, release notes and other modules are "
        "excluded."
    )


def _facts(builder: "tfds.core.DatasetBuilder") -> JsonObject:
    info = builder.info
    prepared = layout.is_prepared(builder.data_path)
    return {
        "name": builder.name,
        "config": builder.builder_config_name,
        "version": str(builder.version),
        "description": info.description,
        "homepage": info.homepage,
        "licence": info.redistribution_info.license,
        "citation": info.citation,
        "release_notes": dict(info.release_notes or {}),
        "features": repr(info.features),
        "supervised_keys": info.supervised_keys,
        "prepared": prepared,
        "path": str(builder.data_dir),
        "splits": {
            name: {
                "examples": split.num_examples,
                "shards": split.num_shards,
                "bytes": split.num_bytes,
            }
            for name, split in (info.splits.items() if prepared else ())
        },
    }


def _versions(builder: "tfds.core.DatasetBuilder", data_dir: str | None) -> list[JsonObject]:
    """Returns all versions of a config that are prepared or in code, newest first."""
    from my_datasets.builders.find_builder import declared_versions, roots
    from my_datasets.resolving.version_select import DeclaredVersions

    config = builder.builder_config_name
    declared = declared_versions(builder.name) or DeclaredVersions()
    folders = [addresses.as_path(root) / builder.name for root in roots(data_dir)]
    prepared = {
        one.version: one
        for folder in folders
        for one in layout.prepared_versions_of(folder)
        if one.config == config
    }
    return [
        {
            "version": str(version),
            "current": version == declared.current,
            "buildable": version in declared.built,
            "prepared": str(prepared[version].path) if version in prepared else None,
            "blocked": declared.blocked.reason(version, config)
            or (prepared[version].metadata.blocked_reason if version in prepared else None),
        }
        for version in sorted({*declared.versions, *prepared}, reverse=True)
    ]


def _version_notes(version: JsonObject) -> str:
    built = "buildable" if version["buildable"] else "not buildable by the current code"
    notes = [
        "prepared" if version["prepared"] else "not prepared",
        "current" if version["current"] else built,
        f"BLOCKED: {version['blocked']}" if version["blocked"] else "",
    ]
    return ", ".join(filter(None, notes))


def _show(facts: JsonObject) -> None:
    config = f"/{facts['config']}" if facts["config"] else ""
    title = f"{facts['name']}{config}:{facts['version']}"
    rows = [("data", facts["path"] + ("" if facts["prepared"] else "  (not prepared)"))]
    for name, split in facts["splits"].items():
        rows.append((f"split {name}", _split(split["examples"], split["shards"], split["bytes"])))
    rows.append(("features", facts["features"]))
    rows.append(("supervised", " -> ".join(map(str, facts["supervised_keys"] or ()))))
    rows += [(f"version {one['version']}", _version_notes(one)) for one in facts["versions"]]
    for version, notes in facts["release_notes"].items():
        rows.append((f"release {version}", notes.strip()))
    for label in ("licence", "homepage", "citation", "description"):
        rows.append((label, (facts[label] or "").strip()))
    _print_facts(("dataset", title), rows)
    if not facts["prepared"]:
        output.echo(f"To prepare it: my-datasets build {title}")
