"""Folders of films."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import sources
from my_datasets.errors import SourceError
from tests.datasets.archives import SHADES, film
from tests.sources.reading import misfit, rows_of


@pytest.fixture
def films(tmp_path):
    """Two classes."""
    for name, data in {"a/0.mp4": film(), "a/1.mp4": film(SHADES[:2]), "b/2.mp4": film()}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return tmp_path


def built(source, data_dir):
    class Films(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=source.features())

        def _split_generators(self, dl_manager):
            return {"train": source}

    builder = Films(data_dir=data_dir)
    builder.download_and_prepare()
    data = tfds.builder_from_directory(builder.data_dir).as_dataset(split="train")
    return {row["file_name"].decode(): row for row in tfds.as_numpy(data)}


def test_frames_are_those_that_were_filmed(films, tmp_path_factory):
    rows = built(sources.video_folder(films), tmp_path_factory.mktemp("data"))
    assert {name: row["label"] for name, row in rows.items()} == {
        "a/0.mp4": 0, "a/1.mp4": 0, "b/2.mp4": 1
    }  # fmt: skip
    video = rows["a/0.mp4"]["video"]
    assert video.shape == (5, 48, 64, 3)
    assert np.abs(video.mean(axis=(1, 2, 3)) - SHADES).max() < 8
    assert rows["a/1.mp4"]["video"].shape == (2, 48, 64, 3)


def test_fewer_and_smaller_frames(films, tmp_path_factory):
    source = sources.video_folder(films, every=2, shortest_side=24, labels=False)
    rows = built(source, tmp_path_factory.mktemp("data"))
    assert rows["a/0.mp4"]["video"].shape == (3, 24, 32, 3)
    assert np.abs(rows["a/0.mp4"]["video"].mean(axis=(1, 2, 3)) - SHADES[::2]).max() < 8


def test_what_is_wrong_is_said(films):
    (films / "a/empty.mp4").write_bytes(b"")
    (films / "a/page.mp4").write_bytes(b"<html>")
    (films / "b/long.mp4").write_bytes(film([0] * 12))
    (films / "b/wide.mp4").write_bytes(film(size=(640, 480)))
    rows, misfits = rows_of(sources.video_folder(films, max_frames=10, max_pixels=100_000))
    assert sorted(rows) == ["a/0.mp4", "a/1.mp4", "b/2.mp4"]
    assert {key: misfit(found) for key, found in misfits.items()} == {
        "a/empty.mp4": ("video", "a video", "an empty file"),
        "a/page.mp4": ("video", "a video", "6 bytes that start with b'<html>'"),
        "b/long.mp4": ("video", "at most 10 frames", "more"),
        "b/wide.mp4": ("video", "frames of at most 100,000 pixels", "640 x 480 pixels"),
    }


@pytest.mark.parametrize("name", ["every", "max_frames", "max_pixels"])
def test_numbers_below_one_are_refused(films, name):
    with pytest.raises(SourceError, match=f"{name} is 0"):
        sources.video_folder(films, **{name: 0})
