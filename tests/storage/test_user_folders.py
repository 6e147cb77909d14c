import os
import stat
from pathlib import Path

import pytest

from my_datasets import errors
from my_datasets.storage.user_folders import cache_folder, settings_folder, state_folder
from tests import programs


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("MY_DATASETS_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_they_are_where_the_xdg_specification_says(home):
    assert state_folder("stores") == home / ".local/state/my_datasets/stores"
    assert cache_folder("verify") == home / ".cache/my_datasets/verify"
    assert settings_folder() == home / ".config/my_datasets"


def test_xdg_variables_count_unless_they_are_relative(home, monkeypatch):
    for name in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name))
    assert state_folder() == home / "STATE/my_datasets"
    assert cache_folder() == home / "CACHE/my_datasets"
    assert settings_folder() == home / "CONFIG/my_datasets"
    for name in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", name)
    assert cache_folder() == home / ".cache/my_datasets"


def test_one_variable_overrides_all(home, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "other"))
    monkeypatch.setenv("MY_DATASETS_HOME", str(home / "mine"))
    assert state_folder("a", "b") == home / "mine/state/a/b"
    assert cache_folder("a") == home / "mine/cache/a"
    assert settings_folder() == home / "mine/settings"


def test_a_relative_override_is_refused(monkeypatch):
    monkeypatch.setenv("MY_DATASETS_HOME", "mine")
    with pytest.raises(errors.InvalidOptionError, match="MY_DATASETS_HOME is not an absolute path"):
        cache_folder()


def test_nobody_else_enters_the_state_folder(home):
    before = os.umask(0)
    try:
        folder = state_folder("stores")
    finally:
        os.umask(before)
    assert folder.is_dir()
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_a_state_folder_that_others_can_write_is_closed(home):
    state_folder().chmod(0o777)
    assert stat.S_IMODE(state_folder().stat().st_mode) == 0o700


def test_a_state_folder_of_another_user_is_refused(home):
    programs.require_root()  # who gives files away
    os.chown(state_folder(), 12345, 12345)
    with pytest.raises(errors.DataDirError, match="belongs to another user"):
        state_folder()


def test_a_home_that_cannot_be_written_is_an_error_of_who_writes(home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("MY_DATASETS_HOME", str(home / "file"))
    assert state_folder("stores") == home / "file/state/stores"


def test_no_home_at_all(monkeypatch):
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(errors.DataDirError, match="no home folder"):
        cache_folder()
    assert not Path("~").exists()
