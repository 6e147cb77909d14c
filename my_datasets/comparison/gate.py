"""The version gate: no version is built whose number does not say what changed."""

import logging
from pathlib import Path

from my_datasets.comparison.diff import Diff, diff
from my_datasets.comparison.subject import Subject
from my_datasets.core import bumps, layout
from my_datasets.core.bumps import Bump
from my_datasets.core.declared import MALFORMED
from my_datasets.core.manifest import Manifest
from my_datasets.core.versioning import Version
from my_datasets.errors import MyDatasetsError, VersionGateError, explain

_LOGGER = logging.getLogger(__name__)

# Changes that a message names.
_NAMED = 6


def check(new_dir: Path, siblings: Path) -> None:
    """Compares a version that was just built with the one before it.

    A version that was made with limits, such as a sample, is neither held to this nor compared
    with; one that cannot be read is passed over with a warning.

    Args:
      new_dir: Where the new version lies, with its metadata.
      siblings: The directory in which other versions of the same dataset and config lie.

    Raises:
      VersionGateError: The number was raised by too little for what changed.
    """
    new = Subject.read(new_dir)
    if new.declared is None or _is_limited(new.manifest):
        return
    version = Version.parse(new.declared.name.rpartition(":")[2])
    before = _before(siblings, version) if version is not None else None
    # Any change may come with a new major version.
    if version is None or before is None or bumps.between(before.version, version) is Bump.MAJOR:
        return
    try:
        found = diff(before.path, new_dir)
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        _LOGGER.warning("%s was not compared with %s: %s", version, before.version, first)
        return
    if not found.is_enough:
        raise _refusal(found, before.path)


def _before(siblings: Path, version: Version) -> layout.PreparedVersion | None:
    """Returns the highest prepared version below another one, of those that are whole."""
    found = [
        one
        for one in layout.versions_in(siblings)
        if one.version < version and not _is_limited(Subject.read(one.path).manifest)
    ]
    return max(found, key=lambda one: one.version, default=None)


def _is_limited(manifest: Manifest | None) -> bool:
    """Returns whether there is less in a version than its builder makes of its input."""
    options = manifest.options if manifest is not None else {}
    return any(name != "on_error" for name in options)


def _refusal(found: Diff, before: Path) -> VersionGateError:
    told = [change for change in found.changes if change.bump is found.required]
    lines = [
        f"{change.node}: {change.kind.value}, because {change.reason}"
        + (f" ({change.before} -> {change.after})" if change.after or change.before else "")
        for change in told[:_NAMED]
    ]
    more = [f"... and {len(told) - _NAMED} more"] if len(told) > _NAMED else []
    return VersionGateError(
        explain(
            f"{found.new} differs from {found.old} by more than its number says.",
            f"Expected: version {found.least} or higher, a {found.required} change",
            *lines,
            *more,
            f"Compared with {before}",
            mend=f"set VERSION to {found.least} and say in RELEASE_NOTES what changed; "
            "or build with --no-version-gate",
        )
    )
