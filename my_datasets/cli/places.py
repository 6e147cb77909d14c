"""Where commands keep what they may find useful again."""

import os
from pathlib import Path


def cache_dir(name: str) -> Path | None:
    """Returns the directory of the user's cache for one purpose; None if there is no such place.

    Args:
      name: The purpose.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = given if given.is_absolute() else Path(os.path.expanduser("~"), ".cache")
    return root / "my_datasets" / name if root.is_absolute() else None
