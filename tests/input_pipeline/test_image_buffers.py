"""Memory that is used again, once nobody holds it."""

import gc
import threading

import numpy as np
import pytest
import tensorflow as tf

from my_datasets.input_pipeline.decode import images
from my_datasets.input_pipeline.decode.images import BufferPool

SHAPE = (3, 400, 1000)
BYTES = 3 * 400 * 1000 * 4


def address(array):
    return array.ctypes.data


def test_it_comes_back_with_its_last_view_and_not_before():
    pool = BufferPool()
    array = pool.aligned(SHAPE, np.float32)
    assert array.shape == SHAPE
    assert array.dtype == np.float32
    assert array.flags.writeable
    assert address(array) % 64 == 0
    first = address(array)
    part = array[1:2, 5]
    view = memoryview(part)
    rows = iter(part)
    for held in ("array", "part", "view", "rows"):
        assert address(pool.aligned(SHAPE, np.float32)) != first, held
        if held == "array":
            del array
        elif held == "part":
            del part
        elif held == "view":
            view.release()
            del view
    del rows
    gc.collect()
    again = {address(found) for found in [pool.aligned(SHAPE, np.float32) for _ in range(4)]}
    assert first in again


def test_a_tensor_holds_it():
    pool = BufferPool()
    array = pool.aligned(SHAPE, np.float32)
    array[...] = 7
    given = [array]
    del array
    call = tf.function(lambda: tf.numpy_function(given.pop, [], tf.float32))
    tensor = call()
    for _ in range(3):
        other = pool.aligned(SHAPE, np.float32)
        other[...] = 8
    assert (tensor.numpy() == 7).all()


def test_little_is_kept():
    pool = BufferPool()
    arrays = [pool.aligned(SHAPE, np.float32) for _ in range(9)]
    small = pool.aligned((10,), np.int64)
    del arrays, small
    gc.collect()
    assert 0 < pool.idle <= 4 * (BYTES + 64)
    large = pool.aligned((300, 1 << 20), np.uint8)
    del large
    assert pool.idle < 300 << 20


def test_threads_never_share_it():
    pool = BufferPool()
    wrong = []

    def work(number):
        for _ in range(200):
            array = pool.aligned((1 << 18,), np.float32)
            array[:] = number
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("shape", [(5, 3, 1), (200, 300, 3)])
def test_floats_are_those_of_tensorflow(dtype, shape):
    pixels = np.random.default_rng(1).integers(0, np.iinfo(dtype).max + 1, (7, *shape), dtype)
    expected = tf.image.convert_image_dtype(pixels, tf.float32).numpy()
    assert np.array_equal(images.as_floats(pixels), expected)
    found = np.empty_like(expected)
    for part, scratch in images.pixel_runs(7, shape, dtype):
        scratch[...] = pixels[part]
        images.scale(scratch, found[part])
    assert np.array_equal(found, expected)
