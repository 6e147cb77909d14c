"""Checks the names and sizes of a version's files, without reading shards."""

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from my_datasets.comparison.version_metadata import REBUILD, ComparedVersion
from my_datasets.core.issue import Issue, Severity
from my_datasets.core.json_types import JsonObject
from my_datasets.core.processes import unless_out_of_memory
from my_datasets.core.version import VersionNumber
from my_datasets.errors import MyDatasetsError
from my_datasets.metadata import recorded_files, sidecars
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.metadata.manifest import FILE_NAME
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.printable import clipped
from my_datasets.records import attachments, index
from my_datasets.storage import regular_files

_LOOKS_LIKE_A_SHARD = re.compile(r"-\d{5,}-of-\d{5,}(\.\w+)?$")


def check_files(subject: ComparedVersion, *, read: bool) -> Iterator[Issue]:
    """Yields missing, different and extra files; `read` also compares the bytes of sidecars."""
    if subject.declared is None:
        return
    recorded = subject.content.splits.values() if subject.content else ()
    shards = [one for split in recorded for one in split.shards]
    sizes = {one.name: one.bytes for one in shards}
    counts = {one.name: one.examples for some in subject.splits.values() for one in some}
    # Another check reports where the two differ.
    counts |= {one.name: one.examples for one in shards}
    reported = set()
    for name in sorted({*counts, *sizes}):
        for issue in _shard(subject.path / name, sizes.get(name), counts.get(name)):
            reported.add(issue.node)
            yield issue
    yield from _recorded(subject, {*counts, *sizes}, reported, read=read)
    yield from _others(subject.path, {*counts, *sizes})


def _recorded(
    subject: ComparedVersion, shards: set[str], reported: set[str], *, read: bool
) -> Iterator[Issue]:
    """Yields issues of sidecars and other files in the manifest."""
    manifest = subject.recorded
    if not manifest.metadata_copy:
        return
    of = {name: shard for shard in shards for name in sidecars.names_of(shard)}
    for name, one in sorted(manifest.files.items()):
        if name not in reported:
            what = f"{sidecars.kind_of(name)} of {of[name]}" if name in of else "file"
            yield from _file(subject.path / name, what, one, read=read)
    for name in sorted(of.keys() - manifest.files.keys()):
        # An index that was created later is compared with its shard.
        if sidecars.kind_of(name) is Sidecar.KEYS and (subject.path / name).exists():
            yield Issue(
                "extra-sidecar", name, f"The keys of {of[name]} are not in the manifest, so they "
                "cannot be verified.", "delete the file",
            )  # fmt: skip


def _file(path: Path, what: str, recorded: JsonObject, *, read: bool) -> Iterator[Issue]:
    """Yields the difference between a file and the manifest."""
    is_index = sidecars.kind_of(path.name) is Sidecar.OFFSETS
    fix = f"my-datasets index {path.parent} --overwrite" if is_index else REBUILD
    size = path.stat().st_size if path.is_file() else None
    if size is None:
        yield Issue("missing-file", path.name, f"The {what} is missing.", fix)
    elif path.is_symlink():
        yield Issue("link", path.name, f"The {what} is a symbolic link.", fix)
    elif size != recorded["bytes"]:
        yield Issue(
            "size", path.name, f"The size of the {what} differs from the manifest.", fix,
            f"{recorded['bytes']:,} bytes", f"{size:,} bytes",
        )  # fmt: skip
    elif not os.access(path, os.R_OK):
        yield denied(path, PermissionError("permission denied"))
    # An index is compared with its shard when the shard is read.
    elif read and not is_index and (found := regular_files.sha256_of(path)) != recorded["sha256"]:
        yield Issue(
            "other-bytes", path.name, f"The {what} differs from the manifest.", fix,
            f"SHA-256 {recorded['sha256'][:16]}", found[:16],
        )  # fmt: skip


def _shard(path: Path, size: int | None, examples: int | None) -> Iterator[Issue]:
    try:
        state = path.lstat()
    except FileNotFoundError:
        yield Issue("missing-shard", path.name, "The shard is missing.", REBUILD)
        return
    except OSError as error:
        yield denied(path, error)
        return
    if stat.S_ISLNK(state.st_mode):
        yield Issue(
            "link", path.name, "The shard is a symbolic link, whose target may change.",
            "replace the link with the file itself", found=f"a link to {path.readlink()}",
        )  # fmt: skip
        return
    if not stat.S_ISREG(state.st_mode):
        yield Issue("no-file", path.name, "The shard is not a regular file.", REBUILD)
        return
    if size is not None and state.st_size != size:
        yield Issue(
            "size", path.name, "The size of the shard differs from the manifest.", REBUILD,
            f"{size:,} bytes", f"{state.st_size:,} bytes",
        )  # fmt: skip
    if not os.access(path, os.R_OK):
        yield denied(path, PermissionError("permission denied"))
        return
    if examples is not None:
        yield from _index(path, state.st_size, examples)


def _index(path: Path, size: int, examples: int) -> Iterator[Issue]:
    index_path = index.path_of(path)
    if not index_path.exists():
        return
    try:
        offsets = np.asarray(sidecars.offsets_of(index_path))
    except Exception as error:  # NumPy raises any error of Python's parser for a damaged header
        yield stale_index(path, f"an invalid index: {error}")
        return
    if offsets.dtype != np.uint64 or offsets.ndim != 1 or len(offsets) != examples + 1:
        yield stale_index(path, f"{offsets.dtype} of shape {offsets.shape}")
    elif offsets[0] != 0 or int(offsets[-1]) != size:
        yield stale_index(path, f"from byte {int(offsets[0]):,} to {int(offsets[-1]):,}")
    elif (offsets[1:] <= offsets[:-1]).any():
        yield stale_index(path, "offsets that do not increase")


def stale_index(path: Path, found: str) -> Issue:
    """Returns the issue of a record index that does not match its shard."""
    return Issue(
        "stale-index", index.path_of(path).name,
        f"The record index does not match {path.name}.",
        f"my-datasets index {path.parent} --overwrite", "the offsets of the shard's records", found,
    )  # fmt: skip


def _others(directory: Path, shards: set[str]) -> Iterator[Issue]:
    known = {name for shard in shards for name in (shard, *sidecars.names_of(shard))}
    for path in sorted(directory.iterdir()):
        name = path.name
        if name in known or name.startswith("."):
            continue
        if name == attachments.FILE_NAME:
            yield Issue(
                "attached", name, "The file says that the shards are in a store.",
                f"pull the release to verify it; if this version was not attached, delete {path}",
            )  # fmt: skip
        if name.endswith(".partial"):
            yield Issue(
                "half-written", name, "The file is incomplete.", "delete it",
                severity=Severity.WARNING,
            )  # fmt: skip
        elif sidecars.kind_of(name) is not None:
            yield Issue(
                "extra-sidecar", name, "The file has the name of a sidecar, but its shard is not "
                "part of this version.", "delete it",
            )  # fmt: skip
        elif _LOOKS_LIKE_A_SHARD.search(name):
            yield Issue(
                "extra-shard", name, "The file looks like a shard, but belongs to no split.",
                "move it elsewhere, or delete it",
            )  # fmt: skip


def denied(path: Path, error: OSError) -> Issue:
    """Returns the issue of a shard that the operating system cannot read."""
    unless_out_of_memory(error)
    return Issue(
        "unreadable-shard", path.name, "The shard cannot be read.",
        "change its permissions, or run this as its owner",
        found=error.strerror or str(error),
    )  # fmt: skip


def check_metadata(subject: ComparedVersion) -> Iterator[Issue]:
    """Yields inconsistencies."""
    misplaced = list(_place(subject))
    yield from misplaced
    yield from _essentials(subject)
    content = subject.content
    if content is None:
        if not any(issue.node == FILE_NAME for issue in subject.issues):
            yield Issue(
                "no-manifest", FILE_NAME,
                "There is no manifest, so only the format's own checksums are verified.",
                f"run my-datasets adopt {subject.path} to write one",
                severity=Severity.WARNING,
            )  # fmt: skip
        return
    found = None
    if not any(issue.node == "features.json" for issue in subject.issues):
        found = subject.metadata.schema_digest
        if found != content.schema:
            yield Issue(
                "other-features", "features.json",
                "The features, or the names of their classes, differ from the manifest.",
                REBUILD, f"schema digest {content.schema[:12]}", found[:12],
            )  # fmt: skip
    reported = set(subject.recorded.metadata)
    if misplaced:
        reported |= {"name", "configName", "version", "splits"}
    yield from _edits(subject, reported, of_features=found == content.schema)
    yield from _splits(subject)


def _edits(subject: ComparedVersion, reported: set[str], *, of_features: bool) -> Iterator[Issue]:
    """Yields each edited field of readable files.

    Leaves out what has another issue: the `reported` fields of `dataset_info.json`, and
    `features.json` unless `of_features`.
    """
    unreadable = {issue.node for issue in subject.issues}
    recorded = subject.recorded.metadata_copy.items()
    readable = {name: value for name, value in recorded if name not in unreadable}
    try:
        found = [
            (name, edit.field, clipped(json.dumps(edit.recorded)), clipped(json.dumps(edit.found)))
            for name, edit in recorded_files.edits(readable, subject.metadata)
        ]
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        yield Issue(
            "unreadable-metadata", "the metadata", "It cannot be compared with the manifest.",
            REBUILD, found=f"{type(error).__name__}: {error}",
        )  # fmt: skip
        return
    for name, field, recorded_value, value in found:
        if name == "features.json" and not of_features:
            continue
        if name == "dataset_info.json" and field.partition(".")[0] in reported:
            continue
        yield Issue(
            "other-metadata", name,
            f"The field {clipped(field)} differs from the manifest.", REBUILD,
            recorded_value, value,
        )  # fmt: skip


def _essentials(subject: ComparedVersion) -> Iterator[Issue]:
    recorded = subject.recorded.metadata
    if not recorded or subject.declared is None:
        return
    found = subject.metadata.essentials
    for name, value in sorted(recorded.items()):
        if found.get(name) != value:
            yield Issue(
                "other-metadata", "dataset_info.json",
                f"The field {clipped(name)} differs from the manifest.", REBUILD,
                clipped(json.dumps(value)), clipped(json.dumps(found.get(name))),
            )  # fmt: skip


def _place(subject: ComparedVersion) -> Iterator[Issue]:
    if subject.declared is None:
        return
    name, _, version = subject.declared.name.partition(":")
    folder = subject.path.resolve()
    if VersionNumber.parse(folder.name) is None:
        return
    if folder.name != version:
        yield Issue(
            "other-version", "dataset_info.json",
            "The metadata is for another version than the directory.",
            REBUILD, folder.name, version,
        )  # fmt: skip
    if folder.parent.name != name.rpartition("/")[2]:
        yield Issue(
            "other-dataset", "dataset_info.json",
            "The metadata is for another dataset or config than the directory.",
            REBUILD, folder.parent.name, name,
        )  # fmt: skip


def _splits(subject: ComparedVersion) -> Iterator[Issue]:
    if subject.declared is None or subject.content is None:
        return
    declared, recorded = subject.declared.splits, subject.content.splits
    for name in sorted({*declared, *recorded}):
        node = f"split {name}"
        if name not in declared or name not in recorded:
            only = "dataset_info.json" if name in declared else "the manifest"
            yield Issue("other-splits", node, f"Only {only} has this split.", REBUILD)
            continue
        in_manifest = [(one.name, one.examples) for one in recorded[name].shards]
        in_info = [(one.name, one.examples) for one in declared[name]]
        if in_manifest != in_info:
            expected = next((one for one in in_manifest if one not in in_info), None)
            found = next((one for one in in_info if one not in in_manifest), None)
            yield Issue(
                "other-shards", node,
                "dataset_info.json and the manifest list different shards or counts.", REBUILD,
                _shown(expected), _shown(found),
            )  # fmt: skip


def _shown(shard: tuple[str, int] | None) -> str:
    return f"{shard[0]} with {shard[1]:,} examples" if shard else "no such shard"
