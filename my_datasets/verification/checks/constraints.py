"""Whether values are what the builder declared of them, and numbers that their type holds."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from my_datasets.comparison import examine
from my_datasets.comparison.examine import Examination
from my_datasets.comparison.findings import violations
from my_datasets.comparison.version_metadata import ANEW, ComparedVersion
from my_datasets.core.issue import Issue
from my_datasets.metadata import features
from my_datasets.statistics.constraints import Constraint


def check_noted(subject: ComparedVersion) -> Iterator[Issue]:
    """Yields what the statistics in the manifest say: values that are none of their type."""
    for split, found in (subject.manifest.statistics if subject.manifest else {}).items():
        for feature, one in found["features"].items():
            if one.get("outside"):
                yield Issue(
                    "outside", f"split {split}, feature {feature}",
                    "Values are no classes of the label." if one["kind"] == "label"
                    else "Values are none of the feature's type: readers get others.",
                    "build the version anew from values that fit, or declare a wider type",
                    found=f"{one['outside']:,} of them",
                )  # fmt: skip


def check_again(subject: ComparedVersion, scratch: Path, workers: int) -> Iterator[Issue]:
    """Yields what is not as the manifest says that the builder declared; reads all examples.

    Args:
      subject: The version; its shards are whole.
      scratch: A directory that is not there yet, for what is needed only now.
      workers: How many processes read.
    """
    leaves = features.known_leaves(subject.path)
    if subject.manifest is None or subject.declared is None or leaves is None:
        return
    declared = {
        name: Constraint(**said)
        for name, said in subject.manifest.constraints.items()
        if set(said) != {"max_drift"}
    }
    if not declared:
        return
    scratch.mkdir()
    try:
        found = examine.examine(
            subject.path, subject.declared, scratch, Examination(leaves, declared), workers=workers
        )
        for feature, told in violations(found, declared):
            yield Issue(
                "constraint", f"feature {feature}", "Values are not what the builder declares.",
                ANEW, found=told,
            )  # fmt: skip
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
