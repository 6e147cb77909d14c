"""A version whose number says less than what changed is refused."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from my_datasets.building.options import BuildOptions
from my_datasets.errors import VersionGateError
from my_datasets.metadata import layout
from tests.comparison.test_diff import ROWS, Versions


def build(data_dir, version, *, options=None, config=None, builder_config=None, **changed):
    attributes = {**changed, "VERSION": tfds.core.Version(version), "name": Versions.name}
    cls = type("Changed", (Versions,), attributes, skip_registration=True)
    cls(data_dir=data_dir, config=builder_config).download_and_prepare(
        build_options=options, download_config=config or tfds.download.DownloadConfig()
    )


def there(data_dir):
    return [str(one.version) for one in layout.prepared_versions(data_dir)]


def more(self, row):
    return {"x": row * 7, "label": row % 2, "y": row}


def other(self, row):
    return {"x": row * 7 + (row == 5), "label": row % 2}


MORE = {**Versions.features, "y": np.int64}


def test_what_its_number_says_is_built(tmp_path):
    build(tmp_path, "1.0.0")
    build(tmp_path, "1.0.1", config=tfds.download.DownloadConfig(num_shards=3))
    build(tmp_path, "1.1.0", features=MORE, example=more)
    build(tmp_path, "2.0.0", example=other)
    # Compared with the one before it, not with the highest one.
    build(tmp_path, "1.1.1", features=MORE, example=more)
    assert there(tmp_path) == ["1.0.0", "1.0.1", "1.1.0", "1.1.1", "2.0.0"]


@pytest.mark.parametrize(
    ("version", "changed", "least", "said"),
    [
        ("1.0.1", {"features": MORE, "example": more}, "1.1.0", "feature y: feature-added"),
        ("1.1.0", {"example": other}, "2.0.0", "split train: examples-changed"),
        ("1.9.0", {"splits": lambda self: {"train": range(ROWS)}}, "2.0.0", "split-removed"),
        ("1.0.9", {"key": lambda self, row: f"k{row}"}, "2.0.0", "examples-reordered"),
    ],
)  # fmt: skip
def test_what_says_too_little_is_refused(tmp_path, version, changed, least, said):
    build(tmp_path, "1.0.0")
    with pytest.raises(VersionGateError) as caught:
        build(tmp_path, version, **changed)
    caught.match(f"The version number of compared:{version} is too low for its changes since")
    caught.match(f"Expected: version {least} or higher")
    caught.match(said)
    caught.match(f"set VERSION to {least}")
    assert there(tmp_path) == ["1.0.0"]
    assert not list((tmp_path / "compared").glob("incomplete*"))
    build(tmp_path, version, options=BuildOptions(version_gate=False), **changed)
    assert there(tmp_path) == ["1.0.0", version]


def test_examples_that_force_it_are_named(tmp_path):
    build(tmp_path, "1.0.0")
    with pytest.raises(VersionGateError, match=r"same keys: train\[\d+\]"):
        build(tmp_path, "1.1.0", example=other)


def test_samples_are_no_measure(tmp_path):
    sample = tfds.download.DownloadConfig(max_examples_per_split=10)
    build(tmp_path, "1.0.0", config=sample)
    build(tmp_path, "1.0.1", example=other)
    build(tmp_path, "1.0.2", config=sample)
    assert there(tmp_path) == ["1.0.0", "1.0.1", "1.0.2"]


def test_an_older_version_may_be_built_after_a_newer_one(tmp_path):
    build(tmp_path, "1.1.0", features=MORE, example=more)
    build(tmp_path, "1.0.0")
    build(tmp_path, "1.0.1", config=tfds.download.DownloadConfig(num_shards=3))
    build(tmp_path, "0.1.0", example=other)  # whatever there is, 1.0.0 may be otherwise
    assert there(tmp_path) == ["0.1.0", "1.0.0", "1.0.1", "1.1.0"]


@pytest.mark.parametrize(
    ("newer", "older", "changed", "allowed", "needed", "said"),
    [
        ("1.1.0", "1.0.0", {"example": other}, "minor", "major", "examples-changed"),
        ("1.0.1", "1.0.0", {"features": MORE, "example": more}, "patch", "major",
         "feature y: feature-removed"),
        ("1.2.0", "1.1.9", {"features": MORE, "example": more}, "minor", "major",
         "feature y: feature-removed"),
    ],
)  # fmt: skip
def test_an_older_version_that_the_newer_one_could_not_follow_is_refused(
    tmp_path, newer, older, changed, allowed, needed, said
):
    build(tmp_path, newer)
    with pytest.raises(VersionGateError) as caught:
        build(tmp_path, older, **changed)
    caught.match(f"from compared:{older} to the existing compared:{newer} are too large")
    caught.match(f"at most a {allowed} change; found a {needed} one")
    caught.match(said)
    caught.match(f"Compared with {tmp_path}/compared/{newer}")
    assert there(tmp_path) == [newer]
    build(tmp_path, older, options=BuildOptions(version_gate=False), **changed)
    assert there(tmp_path) == [older, newer]


def test_both_neighbours_count(tmp_path):
    """What may come after the one below may still not come before the one above."""
    build(tmp_path, "1.0.0")
    build(tmp_path, "1.2.0")
    with pytest.raises(VersionGateError, match=r"existing compared:1\.2\.0"):
        build(tmp_path, "1.1.0", features=MORE, example=more)
    with pytest.raises(VersionGateError, match=r"changes since compared:1\.0\.0"):
        build(tmp_path, "1.1.0", example=other)
    build(tmp_path, "1.1.0", options=BuildOptions(resume=False))  # the class has no other source


def test_versions_are_compared_when_they_are_overwritten_too(tmp_path):
    build(tmp_path, "1.0.0")
    build(tmp_path, "1.0.1")
    overwrite = tfds.download.DownloadConfig(
        download_mode=tfds.download.GenerateMode.REUSE_CACHE_IF_EXISTS
    )
    build(tmp_path, "1.0.0", config=overwrite)
    with pytest.raises(VersionGateError, match=r"existing compared:1\.0\.1"):
        build(tmp_path, "1.0.0", config=overwrite, example=other)


def test_a_blocked_version_is_no_measure(tmp_path):
    """What must not be used promised nothing: the fix is compared with the last good version."""
    blocked = tfds.core.utils.BlockedVersions({"1.0.1": "Row 5 was damaged."})
    build(tmp_path, "1.0.0")
    build(tmp_path, "1.0.1", example=other, options=BuildOptions(version_gate=False))
    with pytest.raises(VersionGateError, match=r"changes since compared:1\.0\.1"):
        build(tmp_path, "1.0.2")
    build(tmp_path, "1.0.2", BLOCKED_VERSIONS=blocked)
    with pytest.raises(VersionGateError, match=r"changes since compared:1\.0\.2"):
        build(tmp_path, "1.0.3", example=other, BLOCKED_VERSIONS=blocked)


def test_a_version_that_may_set_examples_aside_is_whole(tmp_path):
    options = BuildOptions(on_error="quarantine")
    build(tmp_path, "1.0.0", options=options)
    with pytest.raises(VersionGateError):
        build(tmp_path, "1.0.1", options=options, example=other)


def test_a_version_that_cannot_be_read_is_passed_over(tmp_path, caplog):
    build(tmp_path, "1.0.0")
    for path in (tmp_path / "compared" / "1.0.0").glob("*.tfrecord-*"):
        path.unlink()
    (tmp_path / "compared" / "1.0.0" / "my_datasets_manifest.json").unlink()
    build(tmp_path, "1.0.1", example=other)
    assert "1.0.1 was not compared with 1.0.0" in caplog.text


@pytest.mark.parametrize("text", ['{"featuresDict": []}', "[" * 99_999, "{"])
def test_damaged_metadata_of_another_version_are_no_obstacle(tmp_path, caplog, text):
    build(tmp_path, "1.0.0")
    (tmp_path / "compared" / "1.0.0" / "features.json").write_text(text)
    build(tmp_path, "1.0.1", example=other)
    assert "1.0.1 was not compared with 1.0.0" in caplog.text


def configs(*names, default=None):
    return {
        "BUILDER_CONFIGS": [tfds.core.BuilderConfig(name=name) for name in names],
        "DEFAULT_BUILDER_CONFIG_NAME": default,
    }


@pytest.mark.parametrize(
    ("version", "changed", "said"),
    [
        ("1.0.1", configs("a", "b", "c"), "config c: config-added"),
        ("1.9.0", configs("a"), "config b: config-removed, because code that loads it fails"),
        ("1.9.0", configs("a", "b", default="b"), r"default config: config-default.*\(a -> b\)"),
    ],
)
def test_configs_that_come_and_go_are_reported(tmp_path, version, changed, said):
    build(tmp_path, "1.0.0", **configs("a", "b"), builder_config="a")
    with pytest.raises(VersionGateError, match=said):
        build(tmp_path, version, **changed, builder_config="a")
    build(tmp_path, "1.9.1", **configs("a", "b"), builder_config="a")
    build(tmp_path, "1.10.0", **configs("z", "b", "a", default="a"), builder_config="a")
    build(tmp_path, "2.0.0", **configs("a"), builder_config="a")
