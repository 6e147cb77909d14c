"""Where this user's state, cache and settings are on this machine.

They follow the XDG base directories, which `MY_DATASETS_HOME` overrides:

| | what is in it | `MY_DATASETS_HOME` | XDG | otherwise |
|---|---|---|---|---|
| state | what this machine decided or verified | `state` | `$XDG_STATE_HOME/my_datasets` | `~/.local/state/my_datasets` |
| cache | what can be made or downloaded again | `cache` | `$XDG_CACHE_HOME/my_datasets` | `~/.cache/my_datasets` |
| settings | what the user wrote | `settings` | `$XDG_CONFIG_HOME/my_datasets` | `~/.config/my_datasets` |
"""  # noqa: E501 - a table

import contextlib
import os
import stat
from pathlib import Path

from my_datasets.errors import DataDirError, InvalidOptionError

HOME_VARIABLE = "MY_DATASETS_HOME"
# The variable of the XDG specification, and where a folder is if that is not set.
_XDG = {
    "state": ("XDG_STATE_HOME", ".local/state"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "settings": ("XDG_CONFIG_HOME", ".config"),
}


def user_folders() -> dict[str, Path]:
    """Returns the folders for `state`, `cache` and `settings`, without creating them.

    Raises:
      DataDirError: There is no home folder.
      InvalidOptionError: `MY_DATASETS_HOME` is a relative path.
    """
    return {kind: _root(kind) for kind in _XDG}


def state_folder(*names: str) -> Path:
    """Returns a folder for state; only this user can read or write it.

    `names` are subfolders, outermost first. It is created if possible; if not, later writes to it
    fail.

    Raises:
      DataDirError: There is no home folder, or others could write there.
      InvalidOptionError: `MY_DATASETS_HOME` is a relative path.
    """
    root = _root("state")
    folder = root.joinpath(*names)
    with contextlib.suppress(OSError):
        if not folder.is_dir():
            root.parent.mkdir(parents=True, exist_ok=True)
            root.mkdir(mode=stat.S_IRWXU, exist_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
    _require_private(root)
    return folder


def cache_folder(*names: str) -> Path:
    """Returns a folder for what can be made or downloaded again, as `state_folder` does.

    It may not exist, and others may be able to write to it.
    """
    return _root("cache").joinpath(*names)


def settings_folder(*names: str) -> Path:
    """Returns a folder for what the user wrote, as `cache_folder` does."""
    return _root("settings").joinpath(*names)


def _root(kind: str) -> Path:
    variable, otherwise = _XDG[kind]
    if given := os.environ.get(HOME_VARIABLE):
        home = Path(given).expanduser()
        if not home.is_absolute():
            raise InvalidOptionError(
                f"{HOME_VARIABLE} is not an absolute path.",
                f"Found: {given}",
                fix=f"set {HOME_VARIABLE} to a path that begins with /",
            )
        return home / kind
    # As the XDG specification says, a relative path counts as none.
    base = Path(os.environ.get(variable, ""))
    if not base.is_absolute():
        base = Path(os.path.expanduser("~"), otherwise)
    if not base.is_absolute():
        raise DataDirError(
            "This user has no home folder.",
            fix=f"set HOME, or {HOME_VARIABLE} to a folder for state, cache and settings",
        )
    return base / "my_datasets"


def _require_private(root: Path) -> None:
    """Refuses a folder that others can write to: they could forge this machine's decisions."""
    if not hasattr(os, "geteuid"):
        return
    try:
        found = root.stat()
    except OSError:
        return  # a missing folder has no forged files
    if found.st_uid not in (0, os.geteuid()):
        raise DataDirError(
            f"{root} belongs to another user.",
            f"Expected: user {os.geteuid()}",
            f"Found: user {found.st_uid}",
            fix=f"set {HOME_VARIABLE} to a folder of your own, or change the owner",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        try:
            root.chmod(stat.S_IRWXU)
        except OSError as error:
            raise DataDirError(
                f"Other users can write to {root}: {error}", fix=f"chmod 700 {root}"
            ) from error
