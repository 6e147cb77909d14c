"""Checks that the metadata of a version is consistent, and matches its directory."""

import json
from collections.abc import Iterator

from my_datasets.comparison.version_metadata import ANEW, ComparedVersion
from my_datasets.core.issue import Issue, Severity
from my_datasets.core.version import VersionNumber
from my_datasets.errors import MyDatasetsError
from my_datasets.metadata import recorded_files
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.metadata.manifest import FILE_NAME
from my_datasets.printable import clipped


def check(subject: ComparedVersion) -> Iterator[Issue]:
    """Yields inconsistencies."""
    misplaced = list(_place(subject))
    yield from misplaced
    yield from _essentials(subject)
    said = subject.content
    if said is None:
        if not any(issue.node == FILE_NAME for issue in subject.issues):
            yield Issue(
                "no-manifest", FILE_NAME,
                "There is no manifest, so only the format's own checksums are verified.",
                f"run my-datasets adopt {subject.path} to write one",
                severity=Severity.WARNING,
            )  # fmt: skip
        return
    if not any(issue.node == "features.json" for issue in subject.issues):
        found = subject.metadata.schema_digest
        if found != said.schema:
            yield Issue(
                "other-features", "features.json",
                "The features, or the names of their classes, differ from the manifest.",
                ANEW, f"schema digest {said.schema[:12]}", found[:12],
            )  # fmt: skip
    else:
        found = None
    reported = set(subject.manifest.metadata) if subject.manifest else set()
    if misplaced:
        reported |= {"name", "configName", "version", "splits"}
    yield from _edits(subject, reported, of_features=found == said.schema)
    yield from _splits(subject)


def _edits(subject: ComparedVersion, reported: set[str], *, of_features: bool) -> Iterator[Issue]:
    """Yields each edited field of readable files.

    Args:
      subject: The version.
      reported: Fields of `dataset_info.json` that have another issue.
      of_features: Whether to check `features.json`; no if it has another issue.
    """
    recorded = subject.manifest.metadata_copy if subject.manifest else {}
    unreadable = {issue.node for issue in subject.issues}
    names = [name for name in recorded if name not in unreadable]
    readable = {name: recorded[name] for name in names}
    try:
        found = [
            (name, edit.field, clipped(json.dumps(edit.recorded)), clipped(json.dumps(edit.found)))
            for name, edit in recorded_files.edits(readable, subject.metadata)
        ]
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        yield Issue(
            "unreadable-metadata", "the metadata", "It cannot be compared with the manifest.",
            ANEW, found=f"{type(error).__name__}: {error}",
        )  # fmt: skip
        return
    for name, field, recorded_value, value in found:
        if name == "features.json" and not of_features:
            continue
        if name == "dataset_info.json" and field.partition(".")[0] in reported:
            continue
        yield Issue(
            "other-metadata", name,
            f"The field {clipped(field)} differs from the manifest.", ANEW,
            recorded_value, value,
        )  # fmt: skip


def _essentials(subject: ComparedVersion) -> Iterator[Issue]:
    said = subject.manifest.metadata if subject.manifest else {}
    if not said or subject.declared is None:
        return
    found = subject.metadata.essentials
    for name, value in sorted(said.items()):
        if found.get(name) != value:
            yield Issue(
                "other-metadata", "dataset_info.json",
                f"The field {clipped(name)} differs from the manifest.", ANEW,
                clipped(json.dumps(value)), clipped(json.dumps(found.get(name))),
            )  # fmt: skip


def _place(subject: ComparedVersion) -> Iterator[Issue]:
    if subject.declared is None:
        return
    name, _, version = subject.declared.name.partition(":")
    folder = subject.path.resolve()
    if VersionNumber.parse(folder.name) is not None and folder.name != version:
        yield Issue(
            "other-version", "dataset_info.json",
            "The metadata is for another version than the directory.",
            ANEW, folder.name, version,
        )  # fmt: skip
    parent = name.rpartition("/")[2]
    if VersionNumber.parse(folder.name) is not None and folder.parent.name != parent:
        yield Issue(
            "other-dataset", "dataset_info.json",
            "The metadata is for another dataset or config than the directory.",
            ANEW, folder.parent.name, name,
        )  # fmt: skip


def _splits(subject: ComparedVersion) -> Iterator[Issue]:
    said = subject.content
    if subject.declared is None or said is None:
        return
    declared = subject.declared.splits
    for name in sorted({*declared, *said.splits}):
        node = f"split {name}"
        if name not in declared or name not in said.splits:
            only = "dataset_info.json" if name in declared else "the manifest"
            yield Issue("other-splits", node, f"Only {only} has this split.", ANEW)
            continue
        ours = [(one.name, one.examples) for one in said.splits[name].shards]
        theirs = [(one.name, one.examples) for one in declared[name]]
        if ours != theirs:
            expected = next((one for one in ours if one not in theirs), None)
            found = next((one for one in theirs if one not in ours), None)
            yield Issue(
                "other-shards", node,
                "dataset_info.json and the manifest list different shards or counts.", ANEW,
                _shown(expected), _shown(found),
            )  # fmt: skip


def _shown(shard: tuple[str, int] | None) -> str:
    return f"{shard[0]} with {shard[1]:,} examples" if shard else "no such shard"
