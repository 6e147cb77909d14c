"""Where an export is put: whole, and never in place of anything else."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from my_datasets.errors import OverwriteError, explain

# Says that a directory holds an export, which may be replaced.
MARKER = "my-datasets-export.json"


@contextlib.contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Yields a directory that is put into its place when all went well, and else is gone."""
    target.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f".{target.name}.exporting-", dir=target.parent))
    try:
        directory.chmod(0o777 & ~_umask())
        yield directory
        (directory / MARKER).write_text('{"format": 1}\n', "utf-8")
        _put(directory, target)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def check(target: Path, *, overwrite: bool) -> None:
    """Looks whether an export may be put somewhere.

    Raises:
      OverwriteError: There is something else, or an export that is not to be replaced.
    """
    if target.is_dir() and not any(target.iterdir()):
        return
    if not (target.exists() or target.is_symlink()):
        return
    is_ours = (target / MARKER).is_file()
    if not (is_ours and overwrite):
        raise OverwriteError(
            explain(
                f"{target} is there already" + (", an earlier export." if is_ours else "."),
                mend="give --overwrite, or another directory" if is_ours
                else "name a directory that does not exist",
            )
        )  # fmt: skip


def _put(staged: Path, target: Path) -> None:
    """Puts a directory into its place; what was there goes when the new one is there."""
    if not target.exists():
        staged.replace(target)
        return
    if not any(target.iterdir()):
        target.rmdir()
        staged.replace(target)
        return
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    target.replace(old)
    staged.replace(target)
    shutil.rmtree(old)


def _umask() -> int:
    found = os.umask(0o022)
    os.umask(found)
    return found
