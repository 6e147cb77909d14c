"""`my-datasets info`: all that is known of one dataset."""

from pathlib import Path
from typing import Any

import rich_click as click

from my_datasets.cli.options import import_modules, store_option, trusted, trusted_keys_option
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
from my_datasets.core.reference import DatasetReference
from my_datasets.metadata import layout
from my_datasets.storage import addresses


@click.command("info")
@click.argument("reference", metavar="NAME[/CONFIG][:VERSION]")
@data_dir_option_of(PathOrAddress("gs"))
@click.option("--imports", metavar="MODULES", help="Modules to import first, comma-separated.")
@click.option(
    "--fingerprint",
    is_flag=True,
    help="Show which source code counts: if it changes, prepared data are stale.",
)
@store_option("--from", reads=True, required=False)
@trusted_keys_option
@json_option
def command(
    reference: str,
    data_dir: str | None,
    imports: str | None,
    fingerprint: bool,
    store: str | None,
    trusted_keys: Path | None,
    as_json: bool,
) -> None:
    """Show a dataset's features, splits, versions, licence and where its data is.

    A wildcard means the newest prepared version that fits, or else the newest that the code builds.

    With --from, a release is shown as it is in a store: the one that my-datasets pull would bring.
    Only its metadata come from there, and are verified.

    With --fingerprint, it shows of each module of the builder's package which names count for the
    builder's data, and which do not; modules that are not listed do not count.

    Example: my-datasets info digits:1.*.*

    Example: my-datasets info digits --fingerprint

    Example: my-datasets info digits:1.*.* --from https://data.example.org/datasets
    """
    if store is not None:
        if data_dir or imports or fingerprint:
            raise click.UsageError(
                "--from shows a release: leave out --data-dir, --imports and --fingerprint."
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


def _show_release(reference: str, store: str, trusted_keys: Path | None, *, as_json: bool) -> None:
    from my_datasets.cli.release_info import show
    from my_datasets.publishing.describe_release import describe

    found = describe(reference, store, keys=trusted(trusted_keys))
    if as_json:
        print_json(found.to_json())
    else:
        show(found)


def _fingerprint(builder: Any) -> dict[str, Any]:
    """Returns what counts for a builder's data, and what of its modules does not."""
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


def _show_fingerprint(found: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, value in found["fingerprint"].items():
        if not name.startswith("source of "):
            table.add_row(name, Text(value))
    for part in found["source"]:
        table.add_row(f"module {part['module']}", Text(part["sha256"], "bold"))
        names = "all of it" if part["whole"] else ", ".join(part["names"]) or "what it imports"
        table.add_row("  counts", Text(names))
        if part["left_out"]:
            table.add_row("  does not", Text(", ".join(part["left_out"])))
    console().print(table)
    echo(
        "Comments, formatting, docstrings, descriptions and release notes do not count, nor does "
        "any other module."
    )


def _facts(builder: Any) -> dict[str, Any]:
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


def _versions(builder: Any, data_dir: str | None) -> list[dict[str, Any]]:
    """Returns all versions of a dataset and config: prepared, or in code; the newest first."""
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


def _told(version: dict[str, Any]) -> str:
    """Returns what a line says of a version."""
    built = "built by the code" if version["buildable"] else "not built by today's code"
    notes = [
        "prepared" if version["prepared"] else "not prepared",
        "the one of the code" if version["current"] else built,
        f"BLOCKED: {version['blocked']}" if version["blocked"] else "",
    ]
    return ", ".join(filter(None, notes))


def _show(facts: dict[str, Any]) -> None:
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
        table.add_row(f"version {one['version']}", plain(_told(one)))
    for version, notes in facts["release_notes"].items():
        table.add_row(f"release {version}", plain(notes.strip()))
    for label in ("licence", "homepage", "citation", "description"):
        if facts[label]:
            table.add_row(label, plain(facts[label].strip()))
    console().print(table)
    if not facts["prepared"]:
        echo(f"To prepare it: my-datasets build {title}")
