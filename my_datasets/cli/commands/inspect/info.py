"""`my-datasets info`: shows a dataset's metadata."""

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.options import (
    import_modules,
    imports_option,
    store_option,
    trusted,
    trusted_keys_option,
)
from my_datasets.cli.output import (
    PathOrAddress,
    bold,
    console,
    data_dir_option_of,
    echo,
    human_size,
    json_option,
    plain,
    print_json,
    quiet_tensorflow,
    reading_dir,
)
from my_datasets.core.json_types import JsonObject
from my_datasets.core.reference import DatasetReference
from my_datasets.metadata import layout
from my_datasets.storage import addresses
from my_datasets.storage.user_folders import user_folders

_REFERENCE = "NAME[/CONFIG][:VERSION]"

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


@click.command("info")
@click.argument("reference", metavar=f"[{_REFERENCE}]", required=False)
@data_dir_option_of(PathOrAddress("gs"))
@imports_option
@click.option(
    "--fingerprint",
    is_flag=True,
    help="Show which source code the fingerprint covers.",
)
@click.option("--paths", is_flag=True, help="Show where this user's state, cache and settings are.")
@store_option("--from", reads=True, required=False)
@trusted_keys_option
@json_option
def command(
    reference: str | None,
    data_dir: str | None,
    imports: str | None,
    fingerprint: bool,
    paths: bool,
    store: str | None,
    trusted_keys: Path | None,
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
        _show_paths(as_json=as_json)
        return
    if reference is None:
        raise click.UsageError(f"Missing argument {_REFERENCE!r}.")
    if store is not None:
        if data_dir or imports or fingerprint:
            raise click.UsageError(
                "--from cannot be combined with --data-dir, --imports or --fingerprint."
            )
        _show_release(reference, store, trusted_keys, as_json=as_json)
        return
    parsed = DatasetReference.parse(reference)
    if data_dir:
        reading_dir(data_dir)
    quiet_tensorflow()
    import_modules(imports)
    from my_datasets.builders.find_builder import find_builder
    from my_datasets.resolving.request import Request

    builder = find_builder(Request.of(parsed).exact, data_dir=data_dir)
    if fingerprint:
        counting = _fingerprint(builder)
        if as_json:
            print_json(counting)
        else:
            _show_fingerprint(counting)
        return
    facts = {**_facts(builder), "versions": _versions(builder, data_dir)}
    if as_json:
        print_json(facts)
    else:
        _show(facts)


def _show_paths(*, as_json: bool) -> None:
    folders = {kind: str(path) for kind, path in user_folders().items()}
    if as_json:
        print_json(folders)
    else:
        for kind, path in folders.items():
            echo(f"{kind:<10}{path}")


def _show_release(reference: str, store: str, trusted_keys: Path | None, *, as_json: bool) -> None:
    from my_datasets.cli.release_info import show
    from my_datasets.publishing.resolve_release import describe

    found = describe(reference, store, keys=trusted(trusted_keys))
    if as_json:
        print_json(found.to_json())
    else:
        show(found)


def _fingerprint(builder: "tfds.core.DatasetBuilder") -> JsonObject:
    """Returns what is in a builder's fingerprint, and what of its modules is not."""
    from my_datasets.builders import code_fingerprint

    return {
        "name": builder.name,
        "config": builder.builder_config_name,
        "version": str(builder.version),
        "fingerprint": code_fingerprint.fingerprint(builder),
        "source": [
            {
                "module": part.module,
                "file": part.file,
                "whole": part.is_whole,
                "names": list(part.names),
                "left_out": list(part.left_out),
                "sha256": part.sha256,
            }
            for part in code_fingerprint.source_parts(type(builder))
        ],
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
    console().print(table)
    echo(
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
    from my_datasets.builders.find_builder import offer_of, roots
    from my_datasets.resolving.available_versions import DeclaredVersions

    config = builder.builder_config_name
    offer = offer_of(builder.name) or DeclaredVersions()
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
            "current": version == offer.current,
            "buildable": version in offer.built,
            "prepared": str(prepared[version].path) if version in prepared else None,
            "blocked": offer.blocked.reason(version, config)
            or (prepared[version].metadata.blocked_reason if version in prepared else None),
        }
        for version in sorted({*offer.versions, *prepared}, reverse=True)
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
    from rich.table import Table

    config = f"/{facts['config']}" if facts["config"] else ""
    title = f"{facts['name']}{config}:{facts['version']}"
    table = Table.grid(padding=(0, 2))
    table.add_row("dataset", bold(title))
    table.add_row("data", plain(facts["path"] + ("" if facts["prepared"] else "  (not prepared)")))
    for name, split in facts["splits"].items():
        size = f"{split['shards']} shard(s), {human_size(split['bytes'])}"
        table.add_row(f"split {name}", f"{split['examples']:,} examples in {size}")
    table.add_row("features", plain(facts["features"]))
    if facts["supervised_keys"]:
        table.add_row("supervised", " -> ".join(map(str, facts["supervised_keys"])))
    for one in facts["versions"]:
        table.add_row(f"version {one['version']}", plain(_version_notes(one)))
    for version, notes in facts["release_notes"].items():
        table.add_row(f"release {version}", plain(notes.strip()))
    for label in ("licence", "homepage", "citation", "description"):
        if facts[label]:
            table.add_row(label, plain(facts[label].strip()))
    console().print(table)
    if not facts["prepared"]:
        echo(f"To prepare it: my-datasets build {title}")
