"""Folders of images and other files."""

import io
import zlib

import numpy as np
import PIL.Image
import pytest

from my_datasets import sources
from my_datasets.errors import SourceError
from my_datasets.sources import folders
from tests.sources.reading import misfit, rows_of


def image(size=(4, 3), kind="PNG"):
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    PIL.Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@pytest.fixture
def photos(tmp_path):
    """Two classes, with what real archives have among their images."""
    whole = image((64, 64), "JPEG")
    found = {
        "cat/0.jpg": whole, "cat/1.jpg": b"", "cat/2.JPG": image(kind="BMP"), "cat/Thumbs.db": b"x",
        "dog/0.png": image(), "dog/1.jpg": whole[:-200], "dog/2.jpg": b"<html>", "dog/.hidden": b"",
        "dog/3.jpg": image(kind="TIFF"),
    }  # fmt: skip
    for name, data in found.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return tmp_path


def test_images_by_class(photos):
    rows, misfits = rows_of(sources.image_folder(photos))
    assert {key: row["label"] for key, row in rows.items()} == {
        "cat/0.jpg": "cat", "cat/2.JPG": "cat", "dog/0.png": "dog", "dog/1.jpg": "dog"
    }  # fmt: skip
    assert all(row["file_name"] == key for key, row in rows.items())
    assert rows["dog/0.png"]["image"] == (photos / "dog/0.png").read_bytes()
    assert {key: misfit(found) for key, found in misfits.items()} == {
        "cat/1.jpg": ("image", "an image", "an empty file"),
        "dog/2.jpg": ("image", "an image", "6 bytes that start with b'<html>'"),
        "dog/3.jpg": ("image", "a JPEG, PNG or BMP file", "a TIFF file"),
    }


def test_damage_after_the_header_is_found_by_decoding(photos):
    rows, misfits = rows_of(sources.image_folder(photos, decode=True))
    assert "dog/1.jpg" not in rows
    assert "truncated" in str(misfits["dog/1.jpg"].__cause__).lower()


@pytest.mark.parametrize("size", [(400, 300), (20_000, 20_000)])
def test_images_of_absurd_size_are_not_decoded(tmp_path, size):
    """Only the header says so: no memory is taken for the pixels."""
    data = bytearray(image())
    data[16:24] = size[0].to_bytes(4, "big") + size[1].to_bytes(4, "big")
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    (tmp_path / "bomb.png").write_bytes(data)
    _, misfits = rows_of(sources.image_folder(tmp_path, labels=False, max_pixels=100_000))
    assert misfits["bomb.png"].expected == "at most 100,000 pixels"


def test_images_without_classes(photos):
    source = sources.image_folder(photos / "cat", labels=False)
    assert source.schema.names == ["image", "file_name"]
    assert set(rows_of(source)[0]) == {"0.jpg", "2.JPG"}
    (photos / "loose.png").write_bytes(image())
    with pytest.raises(SourceError, match=r"loose\.png is not in a directory that could be"):
        sources.image_folder(photos)


def test_any_files(photos, monkeypatch):
    monkeypatch.setattr(folders, "_FILES", 2)
    monkeypatch.setattr(folders, "_BYTES", 10)
    monkeypatch.setattr(folders, "LARGEST_FILE", 500)
    source = sources.binary_files(photos)
    rows, misfits = rows_of(source)
    assert len(source.items) == 4
    assert rows["cat/Thumbs.db"] == {"data": b"x", "file_name": "cat/Thumbs.db"}
    assert set(misfits) == {"cat/0.jpg", "dog/1.jpg"}
    assert misfits["cat/0.jpg"].expected == "at most 500 bytes"
    assert set(rows_of(sources.binary_files(photos, endings=[".db"]))[0]) == {"Thumbs.db"}
