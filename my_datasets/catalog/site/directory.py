"""A directory with a static site: each file is replaced in one step, and only our own ever are."""

import hashlib
import json
import os
import re

from my_datasets.errors import DataDirError, explain
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.storage import addresses
from my_datasets.storage.regular_files import write_whole

MARKER = "my-datasets-catalog.json"
_FORMAT = 1
_PLAIN = re.compile(r"[A-Za-z0-9_][\w+.-]{0,99}", re.ASCII)


class Site:
    """A static site that is written anew.

    While it is written, readers find old pages and new ones; each of them is whole.

    Attributes:
      told: What it is to be told the next time it is written: texts by name.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Looks whether it may be written there.

        Raises:
          DataDirError: There is something else, or it cannot be written.
        """
        self._directory = addresses.local_path(directory, "The directory of the site")
        self._before, self.told = self._known()
        self._written: set[str] = set()

    def write(self, path: str, contents: str | bytes) -> None:
        """Writes a file, if it is not there with these contents.

        Args:
          path: Its name in the site; parts are divided by `/`.
          contents: A text is written in UTF-8.

        Raises:
          DataDirError: It cannot be written.
        """
        data = contents.encode("utf-8", "replace") if isinstance(contents, str) else contents
        target = self._directory / path
        self._written.add(path)
        try:
            if target.is_file() and target.read_bytes() == data:
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, data, fsync=False)
        except OSError as error:
            raise DataDirError(
                explain(
                    f"{target} cannot be written: {error.strerror}.",
                    fix="name a directory with room that may be written",
                )
            ) from error

    def begin(self) -> None:
        """Notes that the directory is ours, before anything is put there."""
        self._mark(self._before)

    def finish(self) -> None:
        """Deletes the files of the site as it was before that are no more part of it."""
        gone = self._before - self._written
        for path in sorted(gone):
            target = self._directory / path
            target.unlink(missing_ok=True)
            for parent in target.parents:
                if parent == self._directory or not parent.is_dir() or any(parent.iterdir()):
                    break
                parent.rmdir()
        self._mark(self._written)

    def _mark(self, files: set[str]) -> None:
        marker = {"format": _FORMAT, "told": self.told, "files": sorted(files - {MARKER})}
        self.write(MARKER, json.dumps(marker, indent=0) + "\n")

    def _known(self) -> tuple[set[str], dict[str, str]]:
        """Returns the files that an earlier run has written, and what it left for this one."""
        try:
            known = json.loads((self._directory / MARKER).read_text("utf-8"))
            told = {str(name): str(text) for name, text in known.get("told", {}).items()}
            return {one for one in known["files"] if _is_inside(one)}, told
        except (OSError, *MALFORMED):
            if self._directory.is_dir() and any(self._directory.iterdir()):
                raise DataDirError(
                    explain(
                        f"{self._directory} holds something else than a catalogue.",
                        fix="name an empty directory, or one that does not exist",
                    )
                ) from None
            return set(), {}


def plain(name: str) -> str:
    """Returns a name that may stand in an address and in a path, for any name."""
    if _PLAIN.fullmatch(name) and not name.endswith(".") and ".." not in name:
        return name
    letters = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40]
    return f"{letters or 'x'}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _is_inside(path: object) -> bool:
    return isinstance(path, str) and all(
        part not in ("", ".", "..") and "\\" not in part for part in path.split("/")
    )
