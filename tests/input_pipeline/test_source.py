"""Examples at random, against `tfds.load`."""

import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.errors import FeatureError, NotPreparedError, SplitNotFoundError
from tests.input_pipeline.conftest import ROWS

IN_ORDER = tfds.ReadConfig(interleave_cycle_length=1)


def of_tfds(data_dir, name, split="train", **options):
    builder = tfds.builder_from_directory(next((data_dir / name).glob("[0-9]*")))
    data = builder.as_dataset(split=split, read_config=IN_ORDER, **options)
    return list(tfds.as_numpy(data))


def assert_same(found, expected, path=""):
    """Compares values and their types, however they are nested."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for name, value in expected.items():
            assert_same(found[name], value, f"{path}/{name}")
    elif isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, path)
    elif isinstance(expected, tf.compat.v1.ragged.RaggedTensorValue) or hasattr(
        expected, "to_list"
    ):
        assert [np.asarray(one).tolist() for one in found] == expected.to_list(), path
    else:
        assert np.asarray(found).dtype == np.asarray(expected).dtype, path
        assert np.array_equal(found, expected), (path, found, expected)


@pytest.mark.parametrize("split", ["train", "test", "train[50:70]", "test+train[:10%]"])
def test_examples_are_those_of_tfds(data_dir, split):
    source = my_datasets.source("everything", split=split, data_dir=data_dir)
    expected = of_tfds(data_dir, "everything", split)
    assert len(source) == len(expected)
    for found, one in zip(source, expected, strict=True):
        assert_same(found, one)


def test_photographs_have_the_very_pixels(data_dir):
    source = my_datasets.source("photos", data_dir=data_dir, as_supervised=True)
    for found, expected in zip(
        source, of_tfds(data_dir, "photos", as_supervised=True), strict=True
    ):
        assert_same(found, expected)


@pytest.mark.parametrize("size", [(24, 24), (50, 33), (200, 100)])
def test_resized_photographs_are_near_those_of_tensorflow(data_dir, size):
    """Within a unit of rounding; further where a smaller image was decoded in the first place."""
    source = my_datasets.source("photos", data_dir=data_dir, image_size=size)
    for i, expected in enumerate(of_tfds(data_dir, "photos")):
        image = source[i]["image"]
        assert image.shape == (*size, 3)
        wanted = tf.image.resize(expected["image"], size).numpy()
        difference = np.abs(image - wanted)
        is_scaled = all(2 * a <= b for a, b in zip(size, expected["image"].shape, strict=False))
        assert difference.max() < 1 if not is_scaled else difference.mean() < 8


def test_any_of_them_at_once(data_dir):
    source = my_datasets.source("everything", data_dir=data_dir, columns=["whole", "texts"])
    assert source[-1].keys() == {"whole", "texts"}
    all_whole = [example["whole"] for example in source]
    numbers = [200, 3, 3, -1, 0, 249]
    assert [row["whole"] for row in source.getitems(numbers)] == [all_whole[n] for n in numbers]
    assert [row["whole"] for row in source[5:9]] == all_whole[5:9]
    assert source.getitems([]) == []
    for number in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError, match="has 250 examples"):
            source[number]


def test_columns_that_are_not_asked_for_cost_nothing(data_dir):
    source = my_datasets.source("photos", data_dir=data_dir, columns=["label"])
    assert source.decoder._parser._names == ["label"]


def test_no_tensorflow_is_loaded(data_dir):
    code = (
        "import sys, my_datasets\n"
        f"source = my_datasets.source('everything', data_dir={str(data_dir)!r})\n"
        "assert source[7]['text'] == b'text 7text 7text 7' or len(source) == 250\n"
        f"list(my_datasets.batches('photos', image_size=(8, 8), data_dir={str(data_dir)!r}))\n"
        "heavy = {'tensorflow', 'tensorflow_datasets', 'apache_beam', 'requests'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_processes_read_it(data_dir):
    source = my_datasets.source("everything", data_dir=data_dir, columns=["whole"])
    first = source[0]
    for method in ("fork", "spawn"):
        with ProcessPoolExecutor(1, mp_context=get_context(method)) as pool:
            assert pool.submit(source.__getitem__, 0).result() == first
    assert pickle.loads(pickle.dumps(source))[0] == first


def test_a_version_by_its_directory(data_dir):
    path = data_dir / "everything" / "1.2.0"
    assert len(my_datasets.source(str(path), split="all")) == ROWS + 20
    assert len(my_datasets.source("everything:1.*.*", data_dir=data_dir)) == ROWS


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"reference": "nothing"}, NotPreparedError, "my-datasets build nothing"),
        ({"reference": "everything:2.*.*"}, NotPreparedError, "No prepared data matches"),
        ({"reference": "everything", "split": "validation"}, SplitNotFoundError, "train, test"),
        ({"reference": "everything", "columns": ["x"]}, FeatureError, "no feature 'x'"),
    ],
)
def test_what_is_not_there_is_said(data_dir, arguments, error, said):
    with pytest.raises(error, match=said):
        my_datasets.source(**arguments, data_dir=data_dir)


def test_an_example_that_is_one_value_has_no_columns(tmp_path):
    tfds.features.Tensor(shape=(), dtype=np.int64).save_config(tmp_path)
    (tmp_path / "dataset_info.json").write_text('{"name": "one", "version": "1.0.0"}')
    with pytest.raises(FeatureError, match="no feature 'x'"):
        my_datasets.source(tmp_path, columns=["x"])
