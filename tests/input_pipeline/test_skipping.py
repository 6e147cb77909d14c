"""Examples that cannot be decoded are passed over, if that is wanted."""

import io
import logging

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.building.options import BuildOptions
from my_datasets.errors import ExampleError, InvalidOptionError

BROKEN = {3, 4, 11, 29}


def image(i, size=30):
    rng = np.random.default_rng(i)
    return rng.integers(0, 256, (size, size, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    root = tmp_path_factory.mktemp("broken")

    class PartlyBroken(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"image": tfds.features.Image(shape=(None, None, 3)), "number": np.int64}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
            )

        def _split_generators(self, dl_manager):
            damaged = b"\x89PNG no image"
            return {
                "train": [
                    (i, {"image": io.BytesIO(damaged) if i in BROKEN else image(i), "number": i})
                    for i in range(30)
                ],
                "test": [(i, {"image": io.BytesIO(damaged), "number": i}) for i in range(7)],
            }

    PartlyBroken(data_dir=root).download_and_prepare(build_options=BuildOptions(workers=1))
    return {"reference": "partly_broken", "data_dir": root, "image_size": (30, 30)}


@pytest.mark.parametrize("options", [{"batch_size": 10}, {"batch_size": 1, "workers": 3},
                                     {"cache": "memory"}])  # fmt: skip
def test_the_next_one_comes_in_its_place(broken, caplog, options):
    with pytest.raises(ExampleError, match=r"'image' of record \d+ of .*cannot be decoded"):
        list(my_datasets.batches(**broken, **options))
    batches = my_datasets.batches(**broken, undecodable="skip", shuffle=False, epochs=2, **options)
    with caplog.at_level(logging.WARNING):
        found = list(batches)
    numbers = np.concatenate([batch["number"] for batch in found]).tolist()
    in_place = [{3: 5, 4: 5, 11: 12, 29: 0}.get(i, i) for i in range(30)]
    assert numbers == in_place * 2
    for number, one in zip(numbers, np.concatenate([b["image"] for b in found]), strict=True):
        assert np.array_equal(one, image(number))
    assert batches.skipped == 4
    for number in BROKEN:
        said = [one.getMessage() for one in caplog.records]
        assert sum(f"'image' of record {number} of " in one for one in said) == 1
    assert "skipped, 4 so far" in caplog.text
    assert "skipped" in batches.plan.explain()


def test_tf_data_counts_them_too(broken):
    train = my_datasets.pipeline(**broken, undecodable="skip", batch_size=10)
    numbers = np.concatenate([batch["number"].numpy() for batch in train])
    assert len(numbers) == 30
    assert not BROKEN & set(numbers.tolist())
    assert train.stats().skipped == 4


def test_if_all_are_broken_it_is_an_error(broken):
    with pytest.raises(ExampleError, match="cannot be decoded"):
        list(my_datasets.batches(**broken, split="test", undecodable="skip"))
    with pytest.raises(ExampleError, match="cannot be decoded"):
        list(
            my_datasets.batches(**broken, split="test", undecodable="skip", batch_size=1, workers=3)
        )
    with pytest.raises(InvalidOptionError, match="undecodable='ignore'"):
        my_datasets.plan(**broken, undecodable="ignore")
