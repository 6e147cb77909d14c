"""Whether the values of a version are distributed as those of the version before it."""

from collections.abc import Iterator

from my_datasets.comparison.version_metadata import ComparedVersion
from my_datasets.core.issue import Issue, Severity
from my_datasets.core.version import VersionNumber
from my_datasets.errors import IncompleteVersionError
from my_datasets.metadata import layout
from my_datasets.metadata.manifest import Manifest
from my_datasets.statistics.drift import moved


def check(subject: ComparedVersion) -> Iterator[Issue]:
    """Yields what moved since the nearest lower version beside it, as the manifests say.

    It is an error where the builder declares how far a feature may be, else a warning: data may
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
    for one in moved(before[1].statistics, subject.manifest.statistics, limits):
        yield Issue(
            "drift",
            f"split {one.split}, feature {one.feature}",
            f"Its {one.statistic} are not what they were in {name}:{before[0]}.",
            "see both with my-datasets stats; if it is meant to be so, say it in the release "
            "notes" + ("" if one.feature in limits else ", and set max_drift in CONSTRAINTS"),
            expected=f"a {one.measure} distance of at most {one.threshold:g}; {one.before}",
            found=f"{one.distance:.3f}; {one.after}",
            severity=Severity.ERROR if one.feature in limits else Severity.WARNING,
        )


def _before(
    subject: ComparedVersion, version: VersionNumber
) -> tuple[VersionNumber, Manifest] | None:
    config = subject.path.parent
    found = None
    for path in config.iterdir() if config.is_dir() else ():
        other = VersionNumber.parse(path.name)
        if other is None or other >= version or (found and other <= found[0]):
            continue
        if layout.is_prepared(path):
            found = other, path
    if found is None:
        return None
    try:
        manifest = Manifest.read(found[1])
    except (IncompleteVersionError, OSError):
        return None
    return (found[0], manifest) if manifest else None
