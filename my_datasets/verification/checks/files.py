"""Checks the names and sizes of a version's files, without reading shards."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from my_datasets.comparison.version_metadata import ANEW, ComparedVersion
from my_datasets.core.issue import Issue, Severity
from my_datasets.core.json_types import JsonObject
from my_datasets.core.processes import unless_out_of_memory
from my_datasets.metadata import sidecars
from my_datasets.metadata.sidecars import Sidecar
from my_datasets.records import attachments, index
from my_datasets.storage import regular_files

_LOOKS_LIKE_A_SHARD = re.compile(r"-\d{5,}-of-\d{5,}(\.\w+)?$")


def check(subject: ComparedVersion, *, read: bool) -> Iterator[Issue]:
    """Yields missing, different and extra files.

    Args:
      subject: The version.
      read: Whether to compare the bytes of sidecars, too.
    """
    if subject.declared is None:
        return
    said = subject.content
    sizes = {
        one.name: one.bytes
        for split in (said.splits.values() if said else ())
        for one in split.shards
    }
    counts = {one.name: one.examples for some in subject.declared.splits.values() for one in some}
    # Another check reports where the two differ.
    counts |= {
        one.name: one.examples
        for split in (said.splits.values() if said else ())
        for one in split.shards
    }
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
    made = subject.manifest
    if made is None or not made.metadata_copy:
        return
    of = {name: shard for shard in shards for name in sidecars.names_of(shard)}
    for name, one in sorted(made.files.items()):
        if name not in reported:
            what = f"{sidecars.kind_of(name)} of {of[name]}" if name in of else "file"
            yield from _file(subject.path / name, what, one, read=read)
    for name in sorted(of.keys() - made.files.keys()):
        # An index that was created later is compared with its shard.
        if sidecars.kind_of(name) is Sidecar.KEYS and (subject.path / name).exists():
            yield Issue(
                "extra-sidecar", name, f"The keys of {of[name]} are not in the manifest, so they "
                "cannot be verified.", "delete the file",
            )  # fmt: skip


def _file(path: Path, what: str, recorded: JsonObject, *, read: bool) -> Iterator[Issue]:
    """Yields the difference between a file and the manifest."""
    is_index = sidecars.kind_of(path.name) is Sidecar.OFFSETS
    fix = f"my-datasets index {path.parent} --overwrite" if is_index else ANEW
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
        yield Issue("missing-shard", path.name, "The shard is missing.", ANEW)
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
        yield Issue("no-file", path.name, "The shard is not a regular file.", ANEW)
        return
    if size is not None and state.st_size != size:
        yield Issue(
            "size", path.name, "The size of the shard differs from the manifest.", ANEW,
            f"{size:,} bytes", f"{state.st_size:,} bytes",
        )  # fmt: skip
    if not os.access(path, os.R_OK):
        yield denied(path, PermissionError("permission denied"))
        return
    if examples is not None:
        yield from _index(path, state.st_size, examples)


def _index(path: Path, size: int, examples: int) -> Iterator[Issue]:
    beside = index.path_of(path)
    if not beside.exists():
        return
    try:
        offsets = np.asarray(sidecars.offsets_of(beside))
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
        if path.name == attachments.FILE_NAME:
            yield Issue(
                "attached", path.name, "The file says that the shards are in a store.",
                f"pull the release to verify it; if this version was not attached, delete {path}",
            )  # fmt: skip
        if path.name.endswith(".partial"):
            yield Issue(
                "half-written", path.name, "The file is incomplete.", "delete it",
                severity=Severity.WARNING,
            )  # fmt: skip
        elif sidecars.kind_of(name) is not None:
            yield Issue(
                "extra-sidecar", name, "The file has the name of a sidecar, but its shard is not "
                "part of this version.", "delete it",
            )  # fmt: skip
        elif _LOOKS_LIKE_A_SHARD.search(name):
            yield Issue(
                "extra-shard", path.name, "The file looks like a shard, but belongs to no split.",
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
