from pathlib import Path

from my_datasets.core.version import VersionNumber
from my_datasets.metadata import layout
from my_datasets.storage import addresses


def make(directory: Path, *files: str) -> None:
    directory.mkdir(parents=True)
    for name in files or layout.METADATA_FILES:
        (directory / name).write_text("{}")


def test_versions_are_found_by_name_config_and_number(tmp_path):
    make(tmp_path / "b/full/1.10.0")
    make(tmp_path / "b/full/1.9.0")
    make(tmp_path / "b/small/2.0.0")
    make(tmp_path / "a/1.0.0")
    found = [(f.name, f.config, str(f.version)) for f in layout.prepared_versions(tmp_path)]
    assert found == [
        ("a", None, "1.0.0"),
        ("b", "full", "1.9.0"),
        ("b", "full", "1.10.0"),
        ("b", "small", "2.0.0"),
    ]


def test_what_is_not_whole_is_passed_over(tmp_path):
    make(tmp_path / "a/incomplete.ABC123_1.0.0")
    make(tmp_path / "a/.1.0.0.replaced")
    make(tmp_path / "a/1.0.1", "dataset_info.json")
    make(tmp_path / "a/1.0.2", "features.json")
    make(tmp_path / "a/1.0.3")
    make(tmp_path / "downloads/extracted", "x")
    (tmp_path / "a/2.0.0").write_text("a file")
    assert [found.version for found in layout.prepared_versions(tmp_path)] == [
        VersionNumber(1, 0, 3)
    ]


def test_a_missing_directory_holds_nothing(tmp_path):
    assert list(layout.prepared_versions(tmp_path / "none")) == []


def test_remote_directories_are_distinguished_from_local_ones(tmp_path):
    assert addresses.is_remote("gs://bucket/data")
    assert not addresses.is_remote(tmp_path)
    assert addresses.as_path("gs://bucket/data").name == "data"
    assert addresses.as_path("~/x") == Path.home() / "x"


def test_a_directory_that_cannot_be_read_is_passed_over(tmp_path, monkeypatch):
    make(tmp_path / "a/1.0.0")
    make(tmp_path / "lost+found/x")
    real = Path.iterdir

    def iterdir(self):
        if self.name == "lost+found":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert [found.name for found in layout.prepared_versions(tmp_path)] == ["a"]
