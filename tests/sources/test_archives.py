"""Files in archives, read in place; hostile ones are refused."""

import bz2
import gzip
import io
import os
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from my_datasets import sources
from my_datasets.errors import SourceError
from my_datasets.sources import archives
from my_datasets.sources.folders import files
from tests.sources.reading import misfit, rows_of

TABLE = pa.table({"n": [1, 2, 3]})


def parquet():
    file = io.BytesIO()
    pq.write_table(TABLE, file)
    return file.getvalue()


CONTENT = {
    "data/cats/1.bin": b"one", "data/cats/2.bin": b"", "data/dogs/3.bin": bytes(5000),
    "data/.hidden": b"x", "__MACOSX/data/._1.bin": b"x", "data/table.csv": b"n,t\n1,a\n2,b\n",
    "data/more.csv.gz": gzip.compress(b"n,t\n3,c\n"), "data/table.parquet": parquet(),
}  # fmt: skip
KINDS = ["zip", "stored.zip", "tar", "tar.gz", "tgz", "tar.bz2", "tar.xz"]


def pack(path, content):
    """Writes an archive, of the kind that its name says, of contents or `TarInfo`s by name."""
    if path.suffix == ".zip":
        method = zipfile.ZIP_STORED if "stored" in path.name else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, data in content.items():
                archive.writestr(name, data)
        return path
    mode = {"tar": "", "tgz": "gz"}.get(path.suffix[1:], path.suffix[1:])
    with tarfile.open(path, f"w:{mode}") as archive:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture(params=KINDS)
def archive(request, tmp_path):
    return pack(tmp_path / f"some.{request.param}", CONTENT)


def test_files_of_an_archive(archive):
    rows, misfits = rows_of(sources.binary_files(archive, endings=[".bin"]))
    assert not misfits
    assert {key: row["data"] for key, row in rows.items()} == {
        "cats/1.bin": b"one", "cats/2.bin": b"", "dogs/3.bin": bytes(5000),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("inside", "names"),
    [
        ("data/cats", ["1.bin", "2.bin"]),
        ("data/*/1.bin", [""]),
        ("/data/dogs/3.bin", [""]),
        ("data/*/*.bin", ["cats/1.bin", "cats/2.bin", "dogs/3.bin"]),
    ],
)
def test_some_files_of_an_archive(archive, inside, names):
    assert [file.name for file in files(f"{archive}::{inside}")] == names
    with pytest.raises(SourceError, match="There is no file to read at"):
        files(f"{archive}::nothing/*")


def test_tables_in_an_archive(archive):
    rows, _ = rows_of(sources.csv(f"{archive}::data/*.csv*"))
    assert {key: row["n"] for key, row in rows.items()} == {
        "more.csv.gz:0": 3, "table.csv:0": 1, "table.csv:1": 2,
    }  # fmt: skip
    source = sources.parquet(f"{archive}::data/table.parquet")
    assert [row["n"] for row in rows_of(source)[0].values()] == [1, 2, 3]


def test_several_archives_and_other_files(tmp_path):
    for name in ("a.zip", "b.tar.gz"):
        pack(tmp_path / name, {"x.txt": name.encode()})
    (tmp_path / "c.txt").write_text("c")
    rows, _ = rows_of(sources.text_lines([tmp_path / "*.zip", tmp_path / "b.tar.gz",
                                          tmp_path / "c.txt"]))  # fmt: skip
    assert {key: row["text"] for key, row in rows.items()} == {
        "a.zip::/x.txt:0": "a.zip", "b.tar.gz::/x.txt:0": "b.tar.gz", "c.txt:0": "c",
    }  # fmt: skip


def test_an_archive_that_changed_is_another_unit(tmp_path):
    path = tmp_path / "a.zip"
    before = sources.binary_files(pack(path, {"x": b"1", "y": b"2"})).identities()
    os.utime(path, (1, 1))  # the clock of files may not tell the two writes apart
    after = sources.binary_files(pack(path, {"x": b"3", "y": b"2"})).identities()
    assert before != after


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", ["../out", "a/../../out", "/etc/out", "C:/out", "..\\out"])
def test_names_that_lead_out_are_refused(tmp_path, kind, name):
    path = pack(tmp_path / f"bad.{kind}", {"ok": b"x", name: b"x"})
    with pytest.raises(SourceError, match="has a name that leads out of it"):
        files(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(SourceError, match="'link' is a link, a device"):
        files(tmp_path / "bad.tar")


def test_links_in_a_zip_are_refused(tmp_path):
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(SourceError, match="'link' is a link or a device"):
        files(tmp_path / "bad.zip")


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.bz2"])
def test_bombs_are_refused_before_they_are_read(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(archives, "_BOMB_SIZE", 1 << 20)
    path = pack(tmp_path / f"bomb.{kind}", {"zeros": bytes(40 << 20), "more": b"x"})
    with pytest.raises(SourceError, match="may be a bomb"):
        files(path)


def test_a_size_that_is_a_lie_is_found(tmp_path):
    """A header that claims less than there is: no more is read than it claims."""
    path = pack(tmp_path / "lie.zip", {"a": b"1" * 5000, "b": b"2"})
    data = path.read_bytes().replace((5000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(data)
    rows, misfits = rows_of(sources.binary_files(path))
    assert set(rows) == {"b"}
    assert misfit(misfits["a"]) == ("data", "a complete file", "a damaged one")


@pytest.mark.parametrize("kind", ["zip", "stored.zip"])
def test_a_damaged_file_is_reported_and_the_others_are_read(tmp_path, kind):
    path = pack(tmp_path / f"some.{kind}", {"a": b"first " * 100, "b": b"second"})
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(data)
    rows, misfits = rows_of(sources.binary_files(path))
    assert set(rows) == {"b"}
    assert "is damaged" in str(misfits["a"].__cause__)


def test_what_is_no_archive_is_reported(tmp_path):
    for name in ("a.zip", "a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz"):
        (tmp_path / name).write_bytes(b"<html>not found</html>" * 100)
        with pytest.raises(SourceError, match="cannot be read as an archive"):
            files(tmp_path / name)
    whole = pack(tmp_path / "b.tar.gz", {"x": bytes(range(256)) * 1000}).read_bytes()
    (tmp_path / "b.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match="cannot be read as an archive"):
        files(tmp_path / "b.tar.gz")
    (tmp_path / "bare.bz2").write_bytes(bz2.compress(b"n\n1\n"))
    assert len(files(tmp_path / "bare.bz2")) == 1  # a compressed file, no archive


def test_two_files_of_one_name_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x", b"1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x", b"2")
    with pytest.raises(SourceError, match="two files called 'x'"):
        files(tmp_path / "a.zip")


def test_encrypted_archives_are_refused(tmp_path):
    path = pack(tmp_path / "a.zip", {"x": b"1"})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="'x' is encrypted"):
        files(path)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_too_many_files_are_refused(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(archives, "_MOST_FILES", 3)
    assert len(files(pack(tmp_path / f"few.{kind}", dict.fromkeys("abc", b"x")))) == 3
    with pytest.raises(SourceError, match="contains more than 3 files"):
        files(pack(tmp_path / f"many.{kind}", dict.fromkeys("abcd", b"x")))
