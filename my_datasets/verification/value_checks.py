"""Checks values against constraints and types, for drift, and against the digests of splits.

Digests also show examples that are in a split twice, or in two splits.
"""

import heapq
import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from my_datasets.comparison import examine
from my_datasets.comparison.examine import Examination, violations
from my_datasets.comparison.version_metadata import REBUILD, ComparedVersion
from my_datasets.core import hash_sets
from my_datasets.core.hash_sets import DuplicateHashes, Hashes
from my_datasets.core.issue import Issue, Severity
from my_datasets.core.version import VersionNumber
from my_datasets.errors import IncompleteVersionError
from my_datasets.metadata import content, layout
from my_datasets.metadata.content import Content
from my_datasets.metadata.manifest import Manifest
from my_datasets.statistics.constraints import Constraint
from my_datasets.statistics.drift import drifted

_SHOWN = 3


def check_noted_constraints(subject: ComparedVersion) -> Iterator[Issue]:
    """Yields values that do not fit their type, according to the manifest's statistics."""
    for split, found in subject.recorded.statistics.items():
        for feature, one in found["features"].items():
            if one.get("outside"):
                yield Issue(
                    "outside", f"split {split}, feature {feature}",
                    "Values are not classes of the label." if one["kind"] == "label"
                    else "Values do not fit the feature's type: readers get other values.",
                    "rebuild the version with values that fit, or declare a wider type",
                    found=f"{one['outside']:,} of them",
                )  # fmt: skip


def check_constraints_again(
    subject: ComparedVersion, scratch: Path, workers: int
) -> Iterator[Issue]:
    """Yields violations of the constraints in the manifest; reads all examples.

    The shards must be undamaged. `scratch` is a temporary directory to create.
    """
    leaves = subject.metadata.known_leaves
    constraints = {
        name: Constraint(**recorded)
        for name, recorded in subject.recorded.constraints.items()
        if set(recorded) != {"max_drift"}
    }
    if not constraints or subject.declared is None or leaves is None:
        return
    scratch.mkdir()
    try:
        what = Examination(leaves, constraints)
        found = examine.examine(subject.path, subject.declared, scratch, what, workers=workers)
        for feature, violation in violations(found, constraints):
            yield Issue(
                "constraint", f"feature {feature}", "Values violate the builder's constraints.",
                REBUILD, found=violation,
            )  # fmt: skip
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def check_drift(subject: ComparedVersion) -> Iterator[Issue]:
    """Yields the drift since the next lower version beside it, according to their manifests.

    Drift is an error if the builder declares a limit for the feature, else a warning: data may
    change for good reasons.
    """
    if subject.manifest is None or subject.declared is None:
        return
    name, _, text = subject.declared.name.partition(":")
    version = VersionNumber.parse(text)
    before = _before(subject, version) if version else None
    if before is None:
        return
    limits = {
        feature: constraint["max_drift"]
        for feature, constraint in subject.manifest.constraints.items()
        if "max_drift" in constraint
    }
    for one in drifted(before[1].statistics, subject.manifest.statistics, limits):
        yield Issue(
            "drift",
            f"split {one.split}, feature {one.feature}",
            f"Its {one.statistic} differ from those in {name}:{before[0]}.",
            "compare both with my-datasets stats; if the change is intended, mention it in the "
            "release notes"
            + ("" if one.feature in limits else ", and set max_drift in CONSTRAINTS"),
            expected=f"a {one.measure} distance of at most {one.threshold:g}; {one.before}",
            found=f"{one.distance:.3f}; {one.after}",
            severity=Severity.ERROR if one.feature in limits else Severity.WARNING,
        )


def _before(
    subject: ComparedVersion, version: VersionNumber
) -> tuple[VersionNumber, Manifest] | None:
    siblings = ((VersionNumber.parse(path.name), path) for path in subject.path.parent.iterdir())
    lower = [(other, path) for other, path in siblings if other is not None and other < version]
    for other, path in sorted(lower, reverse=True):
        if layout.is_prepared(path):
            try:
                manifest = Manifest.read(path)
            except (IncompleteVersionError, OSError):
                return None
            return (other, manifest) if manifest else None
    return None


def check_digests(
    recorded: Content | None, splits: Mapping[str, Sequence[Hashes]]
) -> Iterator[Issue]:
    """Yields differences from the manifest, and duplicates within and across splits.

    `splits` has the hashes of each split's examples, by shard.
    """
    for name, parts in splits.items():
        expected = recorded.splits.get(name) if recorded else None
        if expected is None:
            continue
        same = content.unordered(parts) == expected.unordered
        if same and content.ordered(parts) == expected.ordered:
            continue
        yield Issue(
            "other-order" if same else "other-examples", f"split {name}",
            "The examples are the same, in a different order." if same else
            "The examples differ from those in the manifest.",
            REBUILD, f"digest {expected.ordered[:16]}", content.ordered(parts)[:16],
        )  # fmt: skip
    for name, parts in splits.items():
        yield from _repeated(name, parts)
    for one, other in itertools.combinations(splits, 2):
        yield from _leak(one, splits[one], other, splits[other])


def _repeated(name: str, parts: Sequence[Hashes]) -> Iterator[Issue]:
    copies = DuplicateHashes.of(parts, _SHOWN)
    if copies.copies:
        shown = ", ".join(f"{a:,} and {b:,}" for a, b in copies.places)
        yield Issue(
            "duplicates", f"split {name}",
            f"{copies.different:,} examples occur more than once, value for value: "
            f"{copies.copies:,} copies.",
            "remove the copies, unless they are intended",
            found=f"{shown} (counted from 0)" + (", ..." if copies.different > _SHOWN else ""),
            severity=Severity.WARNING,
        )  # fmt: skip


def _leak(
    one: str, parts: Sequence[Hashes], other: str, other_parts: Sequence[Hashes]
) -> Iterator[Issue]:
    count = 0
    places: list[tuple[int, int]] = []  # the first few
    for first_piece, second_piece in hash_sets.pieces(parts, other_parts):
        _, first, second = np.intersect1d(
            first_piece.texts, second_piece.texts, return_indices=True
        )
        count += len(first)
        pairs = zip(
            first_piece.places[first].tolist(), second_piece.places[second].tolist(), strict=True
        )
        places = heapq.nsmallest(_SHOWN, [*places, *pairs])
    if count:
        shown = ", ".join(f"{one} {a:,} and {other} {b:,}" for a, b in places)
        yield Issue(
            "leak", f"splits {one} and {other}",
            f"{count:,} examples are in both, value for value.",
            "remove them from one split, or split by a group that keeps them together",
            found=f"{shown} (counted from 0)" + (", ..." if count > _SHOWN else ""),
            severity=Severity.WARNING,
        )  # fmt: skip
