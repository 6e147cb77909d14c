"""Folders of recordings."""

import numpy as np
import pytest
import soundfile
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import sources
from my_datasets.errors import SourceError
from tests.sources.reading import misfit, rows_of

RATE = 8000
WAVE = (np.sin(np.arange(RATE) / 5) * 20_000).astype(np.int16)
STEREO = np.stack([WAVE, -WAVE], axis=1)


def write(path, samples=WAVE, rate=RATE, **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **how)
    return path


@pytest.fixture
def recordings(tmp_path):
    """Two classes, and every format."""
    write(tmp_path / "one/a.wav")
    write(tmp_path / "one/b.flac", WAVE[:500])
    write(tmp_path / "two/c.ogg")
    write(tmp_path / "two/d.mp3")
    return tmp_path


def test_recordings_by_class(recordings):
    source = sources.audio_folder(recordings)
    rows, misfits = rows_of(source)
    assert not misfits
    assert {key: row["label"] for key, row in rows.items()} == {
        "one/a.wav": "one", "one/b.flac": "one", "two/c.ogg": "two", "two/d.mp3": "two"
    }  # fmt: skip
    assert rows["one/a.wav"]["audio"] == WAVE.tolist()
    assert rows["one/b.flac"]["audio"] == WAVE[:500].tolist()
    for lossy in ("two/c.ogg", "two/d.mp3"):
        # An MP3 begins and ends with padding.
        found = np.array(rows[lossy]["audio"], np.float64)
        assert abs(len(found) - RATE) < 4000
        assert 0.8 < np.abs(found).max() / 20_000 < 1.2


def test_features_are_those_of_tfds(recordings):
    features = sources.audio_folder(recordings).features()
    assert type(features["audio"]) is tfds.features.Audio
    assert features["audio"].sample_rate == RATE
    assert (features["audio"].shape, features["audio"].np_dtype) == ((None,), np.int16)
    assert features["label"].names == ["one", "two"]
    only = sources.audio_folder(recordings, dtype="float32").select({"sound": "audio"})
    assert only.features()["sound"].np_dtype == np.float32


def test_several_channels(tmp_path):
    write(tmp_path / "a.wav", STEREO)
    write(tmp_path / "b.wav", STEREO[:0])
    source = sources.audio_folder(tmp_path, labels=False)
    assert source.features()["audio"].shape == (None, 2)
    rows, _ = rows_of(source)
    assert rows["a.wav"]["audio"] == STEREO.tolist()
    assert rows["b.wav"]["audio"] == []


def test_what_is_wrong_is_said(tmp_path):
    whole = write(tmp_path / "0.wav").read_bytes()
    write(tmp_path / "rate.wav", rate=16_000)
    write(tmp_path / "stereo.flac", STEREO)
    write(tmp_path / "long.flac", np.zeros(RATE * 60, np.int16))
    (tmp_path / "cut.wav").write_bytes(whole[:5000])
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "page.mp3").write_bytes(b"<html>")
    packed = write(tmp_path / "cut.flac").read_bytes()
    (tmp_path / "cut.flac").write_bytes(packed[: len(packed) // 2])
    rows, misfits = rows_of(sources.audio_folder(tmp_path, labels=False, max_seconds=30))
    assert list(rows) == ["0.wav"]
    said = {key: misfit(found) for key, found in misfits.items()}
    cut = said.pop("cut.flac")
    assert cut[0] == "audio"
    assert said == {
        "rate.wav": ("audio", "8,000 samples per second", "16,000"),
        "stereo.flac": ("audio", "1 channels", "2"),
        "long.flac": ("audio", "at most 30 seconds", "60 seconds by its header"),
        "cut.wav": ("audio", "16,000 bytes of samples, as its header says", "4,956"),
        "empty.wav": ("audio", "a recording", "an empty file"),
        "page.mp3": ("audio", "a recording", "6 bytes that start with b'<html>'"),
    }


def test_the_first_one_must_be_a_recording_or_be_described(tmp_path):
    (tmp_path / "0.wav").write_bytes(b"RIFF")
    write(tmp_path / "1.wav")
    with pytest.raises(SourceError, match=r"0\.wav is not a recording"):
        sources.audio_folder(tmp_path, labels=False)
    rows, _ = rows_of(sources.audio_folder(tmp_path, labels=False, sample_rate=RATE, channels=1))
    assert list(rows) == ["1.wav"]
    with pytest.raises(SourceError, match="cannot be 'int8'"):
        sources.audio_folder(tmp_path, dtype="int8")


def test_they_are_stored_as_tfds_stores_arrays(recordings, tmp_path_factory):
    """The same samples, given one by one as arrays to TFDS itself."""
    source = sources.audio_folder(recordings)
    rows, _ = rows_of(source)

    class Ours(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=source.features())

        def _split_generators(self, dl_manager):
            return {"train": source}

    class Theirs(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=source.features())

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for key, row in rows.items():
                yield key, {**row, "audio": np.array(row["audio"], np.int16)}

    read = []
    for cls in (Ours, Theirs):
        builder = cls(data_dir=tmp_path_factory.mktemp("data"))
        builder.download_and_prepare()
        read.append([*tfds.as_numpy(builder.as_dataset(split="train"))])
    assert len(read[0]) == 4
    for ours, theirs in zip(*read, strict=True):
        assert ours["file_name"] == theirs["file_name"]
        assert ours["audio"].dtype == theirs["audio"].dtype == np.int16
        assert (ours["audio"] == theirs["audio"]).all()
