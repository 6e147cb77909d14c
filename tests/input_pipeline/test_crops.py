"""Parts of images."""

import cv2
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import my_datasets
from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode.images import Crop, ImageDecoder
from my_datasets.input_pipeline.plan.planner import plan

sides = st.integers(1, 500)
of_one = st.floats(0, 1, exclude_max=True, width=32)


@given(
    kind=st.sampled_from(["center", "random"]), size=st.tuples(sides, sides), height=sides,
    width=sides, draws=st.lists(of_one, min_size=4, max_size=4),
)  # fmt: skip
def test_a_part_lies_within_its_image(kind, size, height, width, draws):
    crop = Crop(kind, size, (0.25, 0.5))
    top, left, rows, columns = crop.box(height, width, np.array(draws, np.float32))
    assert rows >= 1
    assert columns >= 1
    assert 0 <= top <= height - rows
    assert 0 <= left <= width - columns
    if kind == "center":
        assert rows == height or columns == width
        wanted = size[1] / size[0]
        assert abs(columns - rows * wanted) <= max(1, wanted)
    elif min(rows, columns) > 9 and rows < height and columns < width:
        assert 0.2 < rows * columns / (height * width) < 0.6
        assert 0.6 < columns / rows / (size[1] / size[0]) < 1.6


def test_random_parts_are_evenly_spread():
    crop = Crop("random", (10, 10), (0.1, 0.4))
    draws = crop.draws(0, np.arange(4000))
    boxes = np.array([crop.box(300, 300, one) for one in draws])
    areas = boxes[:, 2] * boxes[:, 3] / 90000
    assert abs(areas.mean() - 0.25) < 0.01
    middles = boxes[:, :2] + boxes[:, 2:] / 2
    assert np.abs(middles.mean(axis=0) - 150).max() < 3
    assert not np.array_equal(draws, crop.draws(1, np.arange(4000)))


@pytest.mark.parametrize("ending", [".png", ".jpg"])
@pytest.mark.parametrize("size", [(40, 60), (50, 50), (9, 12)])
def test_the_part_is_that_of_the_whole_image(ending, size):
    rng = np.random.default_rng(0)
    smooth = cv2.resize(rng.integers(0, 256, (2, 2, 3), dtype=np.uint8), (150, 110))
    data = cv2.imencode(ending, smooth)[1].tobytes()
    whole = tf.io.decode_image(data).numpy()
    crop = Crop("random", size, (0.3, 0.9))
    for draws in crop.draws(0, np.arange(20)):
        top, left, rows, columns = crop.box(110, 150, draws)
        found = ImageDecoder(3, size=size, crop=crop)(data, draws)
        part = whole[top : top + rows, left : left + columns]
        wanted = tf.image.resize(part, size).numpy()
        is_scaled = ending == ".jpg" and rows >= 2 * size[0] and columns >= 2 * size[1]
        difference = np.abs(found - wanted)
        # Parts of an image that was decoded smaller begin at its pixels, half a one off at most.
        assert difference.max() < 1 if not is_scaled else difference.mean() < 5


def test_parts_are_the_same_for_all_and_others_in_each_epoch(data_dir):
    def images(**options):
        found = {}
        for batch in my_datasets.batches(
            "photos", data_dir=data_dir, columns=["image"], image_size=(20, 20), crop="random",
            seed=3, shuffle=False, **options,
        ):  # fmt: skip
            for image in batch["image"]:
                found[len(found)] = image
        return found

    one, other = images(epochs=2, batch_size=8), images(epochs=2, batch_size=3, workers=3)
    assert len(one) == 80
    assert all(np.array_equal(one[i], other[i]) for i in one)
    assert not any(np.array_equal(one[i], one[i + 40]) for i in range(40))
    train = my_datasets.pipeline(
        "photos", data_dir=data_dir, image_size=(20, 20), crop="random", seed=3, shuffle=False
    )
    first = np.concatenate([batch.numpy() for batch, _ in train])
    assert np.array_equal(first, np.stack([one[i] for i in range(40)]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"crop": "random"}, "give image_size"),
        ({"crop": "left", "image_size": (3, 3)}, "crop='left'"),
        ({"crop": "random", "image_size": (3, 3), "crop_area": (0, 1)}, "crop_area"),
        ({"crop": "random", "image_size": (3, 3), "cache": "memory"}, "differ in each epoch"),
    ],
)
def test_what_cannot_be_is_said(data_dir, options, said):
    with pytest.raises(InvalidOptionError, match=said):
        plan("photos", data_dir=data_dir, **options)
    made = plan("photos", data_dir=data_dir, crop="center", image_size=(3, 3), cache="memory")
    assert "of their middle" in made.explain()
