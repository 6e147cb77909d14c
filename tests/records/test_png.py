"""PNG files against TensorFlow's decoder."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from my_datasets.builders.encode import media_columns

SHAPES = st.tuples(
    st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 2, 3, 4])
)


@given(hnp.arrays(st.sampled_from([np.uint8, np.uint16]), SHAPES))
def test_pixels_come_back(images):
    for image, file in zip(images, media_columns.encode_png(images), strict=True):
        dtype = tf.uint8 if images.dtype == np.uint8 else tf.uint16
        assert (tf.io.decode_png(file, dtype=dtype).numpy() == image).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_smooth_pictures_shrink_as_with_tensorflow(dtype):
    ramp = np.add.outer(np.arange(64), np.arange(64))[None, ..., None].astype(dtype)
    ours = len(media_columns.encode_png(ramp)[0])
    assert ours <= 1.1 * len(tf.io.encode_png(ramp[0]).numpy())
