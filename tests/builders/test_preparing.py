"""What finished work depends on, beside the code."""

import pytest
import tensorflow_datasets as tfds
from etils import epath

from my_datasets.builders import build_job
from my_datasets.building.options import BuildOptions
from my_datasets.building.units import SplitInput, Units


def identity(tmp_path, *, is_plain=True, **options):
    info = tfds.testing.DummyDataset(data_dir=tmp_path / "data").info
    config = tfds.download.DownloadConfig()
    build_options = BuildOptions(**options)
    job = build_job.job(
        inputs=[SplitInput("train", Units(iter, [[]]), is_plain=is_plain)], info=info,
        config=config, options=build_options, shard_name=lambda name, i, of: f"{name}-{i}-{of}",
    )  # fmt: skip
    return build_job.work_identity(
        job, config, build_options, {"features": "1"}, "tfrecord",
        downloads={}, manual_dir=epath.Path(tmp_path / "manual"),
    )  # fmt: skip


@pytest.mark.parametrize("is_plain", [True, False])
def test_manual_files_count_where_the_generator_does_not_name_them(tmp_path, is_plain):
    manual = tmp_path / "manual/below"
    manual.mkdir(parents=True)
    first = identity(tmp_path, is_plain=is_plain)
    assert identity(tmp_path, is_plain=is_plain) == first
    (manual / "a.csv").write_text("1")
    assert (identity(tmp_path, is_plain=is_plain) == first) is not is_plain


def test_how_fast_and_with_how_much_memory_does_not_count(tmp_path):
    assert identity(tmp_path, workers=1) == identity(tmp_path, workers=8, max_memory=1 << 30)
    assert identity(tmp_path) != identity(tmp_path, on_error="quarantine")
