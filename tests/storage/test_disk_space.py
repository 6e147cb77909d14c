import errno

import pytest

from my_datasets.errors import (
    DataDirError,
    DataDirNotWritableError,
    DiskFullError,
    InvalidReferenceError,
)
from my_datasets.storage import disk_space


def test_a_full_disk_is_reported_with_the_room_left(tmp_path):
    with (
        pytest.raises(DiskFullError, match="The disk is full"),
        disk_space.explained(tmp_path / "x"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "x"))


def test_a_full_disk_elsewhere_is_reported_as_elsewhere(tmp_path):
    with pytest.raises(DiskFullError, match="/tmp/elsewhere could not be"):  # noqa: SIM117
        with disk_space.explained(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device", "/tmp/elsewhere")


def test_tfds_own_check_of_the_disk_is_reported_alike(tmp_path):
    with pytest.raises(DiskFullError), disk_space.explained(tmp_path):
        raise OSError("Not enough disk space. Needed: 1 TiB")


def test_a_source_file_that_cannot_be_read_is_not_the_data_directorys_fault(tmp_path):
    version_dir = tmp_path / "data/digits/1.0.0"
    source = tmp_path / "raw.csv"
    with pytest.raises(PermissionError) as caught, disk_space.explained(version_dir):
        raise PermissionError(errno.EACCES, "Permission denied", str(source))
    assert not isinstance(caught.value, DataDirNotWritableError)


def test_a_removed_file_is_named_though_the_error_has_another_cause(tmp_path):
    version_dir = tmp_path / "data/digits/1.0.0"
    gone = FileNotFoundError(errno.ENOENT, "No such file or directory", str(version_dir / "x"))
    with pytest.raises(DataDirError, match=r"1\.0\.0/x is gone"), disk_space.explained(version_dir):
        raise FileNotFoundError("No such file: x") from gone


def test_our_own_errors_pass(tmp_path):
    with pytest.raises(InvalidReferenceError), disk_space.explained(tmp_path):
        raise InvalidReferenceError("as it was")


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    target = tmp_path / "file/data/1.0.0"
    with pytest.raises(DataDirNotWritableError, match="file is not a directory"):  # noqa: SIM117
        with disk_space.explained(target):
            target.parent.mkdir(parents=True)


def test_a_read_only_file_system_is_named(tmpfs):
    target = tmpfs("1m", "ro") / "data/1.0.0"
    with pytest.raises(DataDirNotWritableError, match="cannot be written to"):  # noqa: SIM117
        with disk_space.explained(target):
            target.parent.mkdir(parents=True)
