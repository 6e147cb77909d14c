"""What changed from each version to the next, as proved by looking at both."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from my_datasets._version import __version__
from my_datasets.catalog.releases import Offered
from my_datasets.comparison.diff import diff
from my_datasets.errors import MyDatasetsError
from my_datasets.metadata import manifest
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.metadata.layout import METADATA_FILES
from my_datasets.storage.regular_files import write_whole

# What is not proved, and why.
ELSEWHERE = "Its examples are in a store elsewhere, and were not compared."


@dataclass(frozen=True)
class Changes:
    """What changed since another version.

    Attributes:
      since: The other version.
      found: As `Diff.to_json` gives it; None if it is not known.
      note: Why it is not known.
    """

    since: str
    found: Mapping[str, Any] | None
    note: str = ""


class Comparing:
    """Compares versions; what was found is kept, for versions do not change."""

    def __init__(self, cache: Path | None, *, workers: int | None = None) -> None:
        """Takes the directory in which it is kept, None for nowhere, and how many processes."""
        self._cache = cache
        self._workers = workers

    def changes(self, old: Offered, new: Offered) -> Changes:
        """Returns what changed from one version to another."""
        since = str(old.version)
        if old.path is None or new.path is None:
            return Changes(since, None, "One of the two cannot be read.")
        kept = self._file(old, new)
        if kept is not None and kept.is_file():
            try:
                return Changes(since, json.loads(kept.read_text("utf-8")))
            except ValueError:
                kept.unlink(missing_ok=True)  # it was not written whole
        try:
            found = diff(old.path, new.path, workers=self._workers).to_json()
        except (MyDatasetsError, OSError, *MALFORMED) as error:
            if not (old.has_shards and new.has_shards):
                return Changes(since, None, ELSEWHERE)
            lines = str(error).splitlines() or [type(error).__name__]
            return Changes(since, None, lines[0])
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, json.dumps(found), fsync=False)
        return Changes(since, found)

    def _file(self, old: Offered, new: Offered) -> Path | None:
        """Returns where it is kept; None without a manifest, which says which bytes there are."""
        if self._cache is None:
            return None
        identity = hashlib.sha256(__version__.encode())
        for one in (old, new):
            for name in (manifest.FILE_NAME, *METADATA_FILES):
                path = (one.path or Path()) / name
                if not path.is_file():
                    return None
                identity.update(hashlib.sha256(path.read_bytes()).digest())
        return self._cache / f"{identity.hexdigest()}.json"
