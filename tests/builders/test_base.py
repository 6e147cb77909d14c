"""What `Builder` promises beyond TFDS: nothing half-made, nothing lost, errors that help."""

import hashlib
import importlib
import multiprocessing
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from my_datasets import errors
from my_datasets.storage import addresses, lease
from tests.builders import toy


@pytest.fixture(autouse=True)
def fresh_toy(monkeypatch):
    """Each test steers the toy its own way."""
    for name in ("values", "payload"):
        monkeypatch.setattr(toy.ToyNumbers, name, getattr(toy.ToyNumbers, name))
    monkeypatch.setattr(toy.ToyNumbers, "on_example", staticmethod(lambda value: None))


OVERWRITE = tfds.download.DownloadConfig(
    download_mode=tfds.download.GenerateMode.REUSE_CACHE_IF_EXISTS
)


def build(data_dir: Path, values: list[int], *, overwrite: bool = False) -> toy.ToyNumbers:
    toy.ToyNumbers.values = values
    builder = toy.ToyNumbers(data_dir=data_dir)
    builder.download_and_prepare(download_config=OVERWRITE if overwrite else None)
    return builder


def read(data_dir: Path) -> list[int]:
    """The values on disk, as TFDS alone reads them."""
    reader = tfds.builder_from_directory(data_dir / "toy_numbers/1.1.0")
    return sorted(int(e["value"]) for e in reader.as_dataset(split="train").as_numpy_iterator())


def hashes(data_dir: Path) -> dict[str, str]:
    directory = data_dir / "toy_numbers/1.1.0"
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.iterdir()}


def entries(data_dir: Path) -> set[str]:
    return {path.name for path in (data_dir / "toy_numbers").iterdir()}


def test_overwriting_leaves_the_old_version_readable_until_the_new_one_is_whole(tmp_path):
    build(tmp_path, [1, 2, 3])
    seen = []
    toy.ToyNumbers.on_example = staticmethod(lambda value: seen.append(read(tmp_path)))
    builder = build(tmp_path, [4, 5, 6, 7], overwrite=True)
    assert seen == [[1, 2, 3]] * 4
    assert read(tmp_path) == [4, 5, 6, 7]
    assert builder.info.splits["train"].num_examples == 4
    assert len(list(builder.as_dataset(split="train"))) == 4
    assert entries(tmp_path) == {"1.1.0", ".1.1.0.lock"}


def test_the_old_version_survives_a_failed_overwrite(tmp_path):
    build(tmp_path, [1, 2, 3])
    before = hashes(tmp_path)

    def fail(value: int) -> None:
        if value == 5:
            raise RuntimeError("in the middle")

    toy.ToyNumbers.on_example = staticmethod(fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        build(tmp_path, [4, 5, 6], overwrite=True)
    assert hashes(tmp_path) == before
    assert read(tmp_path) == [1, 2, 3]
    assert entries(tmp_path) == {"1.1.0", ".1.1.0.lock"}


def test_the_old_version_survives_a_killed_overwrite_and_the_next_run_cleans_up(tmp_path):
    build(tmp_path, [1, 2, 3])
    before = hashes(tmp_path)

    def overwrite() -> None:
        # The lock of its bars would be that of this process's, and stay locked.
        tfds.disable_progress_bar()
        toy.ToyNumbers.on_example = staticmethod(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        toy.ToyNumbers(data_dir=tmp_path).download_and_prepare(download_config=OVERWRITE)

    process = multiprocessing.get_context("fork").Process(target=overwrite)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert hashes(tmp_path) == before
    assert any(name.startswith("incomplete.") for name in entries(tmp_path))
    build(tmp_path, [4])  # finds the old version whole
    assert read(tmp_path) == [1, 2, 3]
    assert entries(tmp_path) == {"1.1.0", ".1.1.0.lock"}


def test_overwriting_in_another_format_is_read_in_that_format(tmp_path):
    build(tmp_path, [1, 2])
    builder = toy.ToyNumbers(data_dir=tmp_path)
    builder.download_and_prepare(download_config=OVERWRITE, file_format="array_record")
    assert builder.info.file_format.value == "array_record"
    assert sorted(int(e["value"]) for e in builder.as_data_source(split="train")) == [1, 2]


def test_overwriting_by_nothing_is_refused(tmp_path):
    build(tmp_path, [1, 2])
    config = tfds.download.DownloadConfig(
        download_mode=OVERWRITE.download_mode, max_examples_per_split=0
    )
    with pytest.raises(errors.OverwriteError, match="that has no examples"):
        toy.ToyNumbers(data_dir=tmp_path).download_and_prepare(download_config=config)
    assert read(tmp_path) == [1, 2]


def test_a_part_that_an_installed_package_lacks_is_no_missing_package(tmp_path):
    def need(value: int) -> None:
        import numpy.no_such_part  # noqa: F401

    toy.ToyNumbers.on_example = staticmethod(need)
    with pytest.raises(ModuleNotFoundError) as caught:
        build(tmp_path, [1])
    assert not isinstance(caught.value, errors.MissingDependencyError)


def test_a_version_without_its_metadata_is_not_taken_for_data(tmp_path):
    build(tmp_path, [1])
    (tmp_path / "toy_numbers/1.1.0/features.json").unlink()
    with pytest.raises(errors.IncompleteVersionError, match="not a complete prepared version"):
        build(tmp_path, [1])
    build(tmp_path, [2], overwrite=True)
    assert read(tmp_path) == [2]


def test_an_interrupted_build_leaves_nothing_visible(tmp_path):
    def interrupt(value: int) -> None:
        raise KeyboardInterrupt

    toy.ToyNumbers.on_example = staticmethod(interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, [1])
    assert entries(tmp_path) == {".1.1.0.lock"}


def test_the_second_of_two_builds_waits_and_uses_the_result(tmp_path):
    generated = []
    both_wait = threading.Event()

    def note(value: int) -> None:
        generated.append(value)
        both_wait.wait(5)

    toy.ToyNumbers.on_example = staticmethod(note)
    toy.ToyNumbers.values = [1]
    builders = [toy.ToyNumbers(data_dir=tmp_path) for _ in range(2)]
    threads = [threading.Thread(target=builder.download_and_prepare) for builder in builders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert generated == [1]
    assert [builder.info.splits["train"].num_examples for builder in builders] == [1, 1]


def test_data_on_a_read_only_disk_is_used_as_it_is(tmpfs):
    data_dir = tmpfs("4m")
    build(data_dir, [1])
    subprocess.run(["mount", "-o", "remount,ro", str(data_dir)], check=True)
    assert build(data_dir, [2]).info.splits["train"].num_examples == 1


def test_a_full_disk_leaves_nothing_and_says_so(tmpfs):
    data_dir = tmpfs("1m")
    toy.ToyNumbers.payload = 100_000
    with pytest.raises(errors.DiskFullError, match="The disk is full"):
        build(data_dir, list(range(40)))
    assert entries(data_dir) == {".1.1.0.lock"}


def test_a_read_only_data_dir_is_an_error_that_names_it(tmpfs):
    data_dir = tmpfs("1m", "ro")
    with pytest.raises(errors.DataDirNotWritableError, match="cannot be written to"):
        build(data_dir, [1])


def test_a_file_in_place_of_the_data_dir_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.DataDirNotWritableError, match="file is not a directory"):
        build(tmp_path / "file", [1])


def test_an_unknown_version_lists_those_in_code_and_on_disk(tmp_path):
    build(tmp_path, [1])
    with pytest.raises(errors.VersionNotFoundError) as caught:
        toy.ToyNumbers(data_dir=tmp_path, version="9.9.9")
    message = str(caught.value)
    assert "has no version 9.9.9" in message
    assert "in code: 1.1.0, 1.0.0" in message
    assert f"prepared in {tmp_path}: 1.1.0" in message
    assert "my-datasets build toy_numbers:1.1.0" in message


def test_a_builder_without_a_version_is_reported_what_to_write():
    class Unversioned(toy.ToyNumbers, skip_registration=True):
        VERSION = None

    with pytest.raises(errors.BuilderError, match=r"(?s)has no version.*VERSION = "):
        Unversioned(data_dir="/nowhere")


def test_a_missing_module_is_reported_with_the_extra_that_brings_it(tmp_path):
    def need_beam(value: int) -> None:
        raise ModuleNotFoundError("No module named 'apache_beam'", name="apache_beam")

    toy.ToyNumbers.on_example = staticmethod(need_beam)
    with pytest.raises(errors.MissingDependencyError, match=r"pip install 'apache-beam>="):
        build(tmp_path, [1])


def test_overwriting_a_remote_version_is_refused(tmp_path, monkeypatch):
    builder = build(tmp_path, [1])
    monkeypatch.setattr(addresses, "is_remote", lambda directory: True)
    monkeypatch.setattr(lease, "EXPIRY_SECONDS", 0)  # the local lock is no lease, and waited for
    with pytest.raises(errors.OverwriteError, match="cannot be overwritten in place"):
        builder.download_and_prepare(download_config=OVERWRITE)


def two_modules(tmp_path: Path, monkeypatch, second: str) -> None:
    source = (
        "import tensorflow_datasets as tfds, my_datasets\n"
        "class {}(my_datasets.Builder):\n"
        "    VERSION = tfds.core.Version('1.0.0')\n"
        "    def _info(self): ...\n"
        "    def _split_generators(self, dl_manager): ...\n"
        "    def _generate_examples(self): ...\n"
    )
    (tmp_path / "first_of_two.py").write_text(source.format("TwinOfTwo"))
    (tmp_path / "second_of_two.py").write_text(source.format(second))
    monkeypatch.syspath_prepend(tmp_path)


def test_two_builders_of_one_name_are_named_with_their_files(tmp_path, monkeypatch):
    two_modules(tmp_path, monkeypatch, "TwinOfTwo")
    importlib.import_module("first_of_two")
    with pytest.raises(errors.DuplicateBuilderError) as caught:
        importlib.import_module("second_of_two")
    message = str(caught.value)
    assert "'twin_of_two'" in message
    assert os.fspath(tmp_path / "first_of_two.py") in message
    assert os.fspath(tmp_path / "second_of_two.py") in message


def test_one_file_imported_twice_is_no_conflict(tmp_path, monkeypatch):
    two_modules(tmp_path, monkeypatch, "ReloadedTwin")
    module = importlib.import_module("second_of_two")
    latest = importlib.reload(module).ReloadedTwin
    assert tfds.builder_cls("reloaded_twin") is latest


def test_nothing_is_overwritten_through_the_folder_of_a_dataset(tmp_path):
    builder = build(tmp_path / "disk", [0, 1])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / builder.name).symlink_to(Path(builder.data_dir).parent)
    with pytest.raises(
        errors.OverwriteError, match="is a link that leads out of the data directory"
    ):
        build(tmp_path / "data", [2], overwrite=True)
    assert list(build(tmp_path / "data", [0, 1]).info.splits) == list(builder.info.splits)
