"""The version gate: refuses to build a version whose number does not reflect what changed."""

from pathlib import Path

from my_datasets.comparison.diff import Diff, diff
from my_datasets.comparison.version_metadata import ComparedVersion
from my_datasets.core import version
from my_datasets.core.logs import get_logger
from my_datasets.core.version import Bump, VersionNumber
from my_datasets.errors import MyDatasetsError, VersionGateError, problem_of
from my_datasets.metadata import layout
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.metadata.manifest import Manifest
from my_datasets.resolving.version_select import Blocked

_LOGGER = get_logger(__name__)

# Maximum number of changes listed in a message.
_NAMED = 6


def check(new_dir: Path, siblings: Path, blocked: Blocked | None = None) -> None:
    """Compares a version that was just built with the nearest lower and the nearest higher version.

    The rule applies from the lower to the higher version, whichever was built first. Versions built
    with limits, such as samples, and blocked versions are neither checked nor compared with. A
    neighbor that cannot be read is skipped with a warning.

    Args:
      new_dir: The directory of the new version, with its metadata.
      siblings: The directory with the other versions of the same dataset and config.
      blocked: The blocked versions.

    Raises:
      VersionGateError: The number of the higher version was not raised enough for what changed.
    """
    new = ComparedVersion.read(new_dir)
    if new.declared is None or _is_limited(new.manifest):
        return
    name, _, text = new.declared.name.rpartition(":")
    version = VersionNumber.parse(text)
    if version is None:
        return
    config = name.partition("/")[2] or None
    candidates = _comparable(siblings, config, blocked or Blocked())
    below = max((one for one in candidates if one < version), default=None)
    above = min((one for one in candidates if one > version), default=None)
    if below is not None:
        found = _compared((below, candidates[below]), (version, new_dir))
        if found is not None and not found.is_enough:
            raise _too_little(found, candidates[below])
    if above is not None:
        found = _compared((version, new_dir), (above, candidates[above]))
        if found is not None and not found.is_enough:
            raise _too_different(found, candidates[above])


def _compared(low: tuple[VersionNumber, Path], high: tuple[VersionNumber, Path]) -> Diff | None:
    """Returns the differences between two versions; None if any are allowed or they are unknown."""
    if version.between(low[0], high[0]) is Bump.MAJOR:
        return None
    try:
        return diff(low[1], high[1])
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        why = problem_of(error)
        _LOGGER.warning("%s was not compared with %s: %s", high[0], low[0], why)
        return None


def _comparable(siblings: Path, config: str | None, blocked: Blocked) -> dict[VersionNumber, Path]:
    """Returns the prepared versions that are complete and not blocked."""
    return {
        one.version: one.path
        for one in layout.versions_in(siblings)
        if not (blocked.reason(one.version, config) or one.metadata.blocked_reason)
        and not _is_limited(ComparedVersion.read(one.metadata).manifest)
    }


def _is_limited(manifest: Manifest | None) -> bool:
    """Returns whether a version has less data than its builder generates from the full input."""
    options = manifest.options if manifest is not None else {}
    return any(name != "on_error" for name in options)


def _too_little(found: Diff, below: Path) -> VersionGateError:
    return VersionGateError(
        f"The version number of {found.new} is too low for its changes since {found.old}.",
        f"Expected: version {found.least} or higher, a {found.required} change",
        *_lines(found),
        f"Compared with {below}",
        fix=f"set VERSION to {found.least} and describe the changes in RELEASE_NOTES, or build "
        "with --no-version-gate",
    )


def _too_different(found: Diff, above: Path) -> VersionGateError:
    return VersionGateError(
        f"The changes from {found.old} to the existing {found.new} are too large.",
        f"Expected: at most a {found.actual} change; found a {found.required} one",
        *_lines(found),
        f"Compared with {above}",
        fix="make the code build the older version as it was; or renumber the existing version if "
        "it is wrong; or build with --no-version-gate",
    )


def _lines(found: Diff) -> list[str]:
    """Returns the changes that require the largest bump, as lines of a message."""
    decisive = [change for change in found.changes if change.bump is found.required]
    lines = [
        f"{change.node}: {change.kind.value}, because {change.reason}"
        + (f" ({change.before} -> {change.after})" if change.after or change.before else "")
        for change in decisive[:_NAMED]
    ]
    more = [f"... and {len(decisive) - _NAMED} more"] if len(decisive) > _NAMED else []
    return [*lines, *more]
