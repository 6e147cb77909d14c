"""Where the lock that holds is found."""

import os

import pytest

from my_datasets.errors import LockError
from my_datasets.resolving.lock import Lock
from tests import programs


@pytest.mark.parametrize("is_open", [True, False])
def test_a_lock_that_another_user_put_there_is_refused(tmp_path, monkeypatch, is_open):
    """As `/tmp/datasets.lock`, above everybody's scratch directories."""
    monkeypatch.delenv("MY_DATASETS_LOCK", raising=False)
    path, inner = tmp_path / "datasets.lock", tmp_path / "mine"
    inner.mkdir()
    Lock(path).write()
    tmp_path.chmod(0o1777 if is_open else 0o755)
    assert Lock.find(inner) is not None
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if not is_open:  # a colleague's project
        assert Lock.find(inner) is not None
        return
    with pytest.raises(LockError, match="another user's"):
        Lock.find(inner)
    monkeypatch.setenv("MY_DATASETS_LOCK", str(path))
    assert Lock.find(inner) is not None


def test_a_link_that_another_user_put_there_is_refused(tmp_path, monkeypatch):
    """Also if it leads to a file of your own: whoever made the link chose that file."""
    programs.require_root()  # only root makes a link of another user
    monkeypatch.delenv("MY_DATASETS_LOCK", raising=False)
    shared, mine = tmp_path / "shared", tmp_path / "mine"
    (shared / "inner").mkdir(parents=True)
    mine.mkdir()
    Lock(mine / "datasets.lock").write()
    (shared / "datasets.lock").symlink_to(mine / "datasets.lock")
    shared.chmod(0o1777)
    assert Lock.find(shared / "inner") is not None
    os.chown(shared / "datasets.lock", 12345, -1, follow_symlinks=False)
    with pytest.raises(LockError, match="another user's"):
        Lock.find(shared / "inner")
