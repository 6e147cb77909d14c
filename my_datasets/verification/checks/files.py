"""Whether the files of a version are there, of their size, and no others: nothing is read."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from my_datasets.comparison.subject import ANEW, Subject
from my_datasets.core.issues import Issue, Severity
from my_datasets.records import index, keys

_LOOKS_LIKE_A_SHARD = re.compile(r"-\d{5,}-of-\d{5,}(\.\w+)?$")


def check(subject: Subject) -> Iterator[Issue]:
    """Yields what is wrong with the files."""
    if subject.declared is None:
        return
    said = subject.content
    sizes = {
        one.name: one.bytes
        for split in (said.splits.values() if said else ())
        for one in split.shards
    }
    counts = {one.name: one.examples for some in subject.declared.splits.values() for one in some}
    # Where the two do not agree, that is told elsewhere.
    counts |= {
        one.name: one.examples
        for split in (said.splits.values() if said else ())
        for one in split.shards
    }
    for name in sorted({*counts, *sizes}):
        yield from _shard(subject.path / name, sizes.get(name), counts.get(name))
    yield from _others(subject.path, {*counts, *sizes})


def _shard(path: Path, size: int | None, examples: int | None) -> Iterator[Issue]:
    try:
        state = path.lstat()
    except FileNotFoundError:
        yield Issue("missing-shard", path.name, "The shard is not there.", ANEW)
        return
    except OSError as error:
        yield denied(path, error)
        return
    if stat.S_ISLNK(state.st_mode):
        yield Issue(
            "link", path.name, "The shard is a symbolic link, whose target may change.",
            "put the file itself in its place", found=f"a link to {path.readlink()}",
        )  # fmt: skip
        return
    if not stat.S_ISREG(state.st_mode):
        yield Issue("no-file", path.name, "The shard is no regular file.", ANEW)
        return
    if size is not None and state.st_size != size:
        yield Issue(
            "size", path.name, "The shard has another size than when it was made.", ANEW,
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
        offsets = np.asarray(index.offsets_of(beside))
    except Exception as error:  # of a damaged header, NumPy raises whatever Python's parser does
        yield stale_index(path, f"no index: {error}")
        return
    if offsets.dtype != np.uint64 or offsets.ndim != 1 or len(offsets) != examples + 1:
        yield stale_index(path, f"{offsets.dtype} of shape {offsets.shape}")
    elif offsets[0] != 0 or int(offsets[-1]) != size:
        yield stale_index(path, f"from byte {int(offsets[0]):,} to {int(offsets[-1]):,}")
    elif (offsets[1:] <= offsets[:-1]).any():
        yield stale_index(path, "records that end before they begin")


def stale_index(path: Path, found: str) -> Issue:
    """Returns what is wrong with the record index of a shard."""
    return Issue(
        "stale-index", index.path_of(path).name, "The record index is not that of its shard.",
        f"my-datasets index {path.parent} --overwrite", "where the shard's records begin", found,
    )  # fmt: skip


def _others(directory: Path, known: set[str]) -> Iterator[Issue]:
    for path in sorted(directory.iterdir()):
        name = path.name.removesuffix(index.SUFFIX).removesuffix(keys.SUFFIX)
        if name in known or path.name.startswith("."):
            continue
        if path.name.endswith(".partial"):
            yield Issue(
                "half-written", path.name, "The file was not finished.", "delete it",
                severity=Severity.WARNING,
            )  # fmt: skip
        elif _LOOKS_LIKE_A_SHARD.search(name):
            yield Issue(
                "extra-shard", path.name, "The file looks like a shard, and belongs to no split.",
                "move it to where it belongs, or delete it",
            )  # fmt: skip


def denied(path: Path, error: OSError) -> Issue:
    """Returns what is wrong with a shard that the system does not give."""
    return Issue(
        "unreadable-shard", path.name, "The shard cannot be read.",
        "change its permissions, or run this as its owner",
        found=error.strerror or str(error),
    )  # fmt: skip
