"""The progress of a build."""

from pathlib import Path

from my_datasets.building import progress


def test_memory_is_only_estimated_where_the_system_tells_less(monkeypatch):
    read_text = Path.read_text

    def limited(path, *args, **options):
        if path.name == "children":
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", limited)
    assert progress.resident_memory() >= 0
