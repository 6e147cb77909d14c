"""Where an export is put: whole, and never in place of anything else."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from my_datasets.building import staging
from my_datasets.errors import OverwriteError, explain

# Says that a directory holds an export, which may be replaced.
MARKER = "my-datasets-export.json"


@contextlib.contextmanager
def staged(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yields a directory that is put into its place when all went well, and else is gone.

    Raises:
      OverwriteError: There is something else by now; see `check`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with staging.beside(target) as directory:
        yield directory
        (directory / MARKER).write_text('{"format": 1}\n', "utf-8")
        # Exports take long: what was put there in the meantime is not ours.
        check(target, overwrite=overwrite)
        if target.exists():
            staging.swap(directory, target)
        else:
            directory.rename(target)


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
                fix="give --overwrite, or another directory" if is_ours
                else "name a directory that does not exist",
            )
        )  # fmt: skip
