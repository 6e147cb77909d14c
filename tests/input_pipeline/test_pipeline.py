"""Plans as `tf.data`, trained on and saved."""

import dataclasses
import io
import shutil
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.building.options import BuildOptions
from my_datasets.errors import CorruptShardError, ExampleError, FeatureError, PlanError
from my_datasets.input_pipeline.frameworks.tf_dataset import Pipeline
from my_datasets.input_pipeline.plan.planner import plan
from my_datasets.input_pipeline.transform.augment import CutMix, MixUp, RandomFlip, compose

EACH = 250


def test_batches_are_those_of_numpy(data_dir):
    columns = ["whole", "text", "texts", "nested", "grey", "inner", "maybe", "bits"]
    made = plan("everything", columns=columns, batch_size=32, epochs=2, data_dir=data_dir)
    pipeline = my_datasets.pipeline(made)
    assert isinstance(pipeline, tf.data.Dataset)
    assert len(pipeline) == 16
    assert pipeline.steps_per_epoch == 8
    for found, expected in zip(pipeline, my_datasets.batches(made), strict=True):
        assert found.keys() == expected.keys() == set(columns)
        for name in ("whole", "text", "grey", "maybe", "bits"):
            assert np.array_equal(found[name].numpy(), expected[name])
        assert found["inner"]["y"]["z"].numpy().tolist() == expected["inner"]["y"]["z"].tolist()
        for name in ("texts", "nested"):
            rows = expected[name].rows()
            plain = [[np.asarray(v).tolist() for v in row] for row in rows]
            assert found[name].to_list() == plain


def test_its_values_are_those_of_tfds(data_dir):
    (directory,) = (data_dir / "everything").glob("[0-9]*")
    theirs = {
        int(example["whole"]): example
        for example in tfds.as_numpy(
            tfds.builder_from_directory(directory).as_dataset(split="train")
        )
    }
    columns = ["whole", "wide", "text", "vector", "grey", "three"]
    seen = []
    for batch in my_datasets.pipeline("everything", columns=columns, data_dir=data_dir):
        for i, number in enumerate(batch["whole"].numpy().tolist()):
            seen.append(number)
            for name in columns:
                assert np.array_equal(batch[name][i].numpy(), theirs[number][name])
    assert sorted(seen) == sorted(theirs)


def test_shapes_are_known_where_they_are_the_same(data_dir):
    spec = my_datasets.pipeline(
        "photos", image_size=(16, 24), batch_size=8, drop_remainder=True, data_dir=data_dir
    ).element_spec
    assert spec[0].shape == (8, 16, 24, 3)
    assert spec[0].dtype == tf.uint8
    assert spec[1].shape == (8,)
    assert my_datasets.pipeline("everything", data_dir=data_dir).element_spec[0].shape[0] is None
    with pytest.raises(FeatureError, match="image_size"):
        my_datasets.pipeline("photos", data_dir=data_dir)


def test_images_from_0_to_1_are_the_same_everywhere(data_dir):
    options = {"image_size": (9, 9), "image_dtype": "float32", "data_dir": data_dir}
    raw = list(my_datasets.batches("photos", image_size=(9, 9), data_dir=data_dir))
    for made in (
        my_datasets.pipeline("photos", **options), my_datasets.batches("photos", **options),
        my_datasets.torch_loader("photos", workers=1, **options),
    ):  # fmt: skip
        for (images, labels), (wanted, numbers) in zip(made, raw, strict=True):
            assert np.asarray(images).dtype == np.float32
            assert np.allclose(np.asarray(images), wanted / 255, atol=1e-6)
            assert np.array_equal(np.asarray(labels), numbers)


def test_what_is_scaled_is_an_image_by_its_feature(data_dir):
    options = {"columns": ["packed", "grey", "wide_image", "depth", "frames"],
               "image_dtype": "float32", "batch_size": 50, "data_dir": data_dir}  # fmt: skip
    for batches in (my_datasets.pipeline, my_datasets.batches):
        for batch in batches("everything", **options):
            assert np.asarray(batch["packed"]).dtype == np.uint8  # a tensor that looks like one
            for name in ("grey", "wide_image", "frames"):
                assert np.asarray(batch[name]).dtype == np.float32
                assert 0.5 < np.asarray(batch[name]).max() <= 1
            assert np.asarray(batch["depth"]).min() < 0
    for images, _ in my_datasets.batches("photos", image_dtype="float32", data_dir=data_dir):
        assert all(image.dtype == np.float32 and image.max() <= 1 for image in images)


_ENDS = """
import sys, time
import my_datasets
from my_datasets.input_pipeline.engine import Engine

real = Engine.load
def slow(*arguments):
    time.sleep(0.3)
    return real(*arguments)

Engine.load = slow
batches = iter(my_datasets.pipeline("everything", batch_size=9, epochs=None, workers=2,
                                    prefetch=3, data_dir=sys.argv[1]))
next(batches)
"""


def test_a_process_ends_while_batches_are_made(data_dir):
    done = subprocess.run(
        [sys.executable, "-c", _ENDS, str(data_dir)], check=False, timeout=120, text=True,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "StopIteration" not in done.stderr


def test_a_model_is_trained(data_dir):
    train = my_datasets.pipeline("everything", batch_size=25, epochs=None, data_dir=data_dir)
    assert train.cardinality() == tf.data.INFINITE_CARDINALITY
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(train, steps_per_epoch=train.steps_per_epoch, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2
    assert train.stats().steps >= 20


def test_each_replica_sees_its_own_part(data_dir):
    """Two logical devices, in a process of their own."""
    import subprocess
    import sys

    code = f"""
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import my_datasets
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
data = my_datasets.pipeline(
    "everything", columns=["whole"], batch_size=50, data_dir={str(data_dir)!r}
)
seen = []
for batch in strategy.experimental_distribute_dataset(data):
    parts = strategy.experimental_local_results(batch["whole"])
    assert len(parts) == 2 and all(len(part) == 25 for part in parts)
    seen += [int(n) for part in parts for n in part]
assert sorted(seen) == list(range(-100, 150))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_checkpoint_resumes_exactly(data_dir, tmp_path, share, monkeypatch):
    made = plan("everything", columns=["whole"], batch_size=4, epochs=None, data_dir=data_dir)
    iterator = Pipeline(made).iterator()
    for _ in range(int(share * EACH / 4)):
        next(iterator)
    path = tf.train.Checkpoint(data=iterator).save(tmp_path / "model")
    expected = [next(iterator)["whole"].numpy().tolist() for _ in range(80)]
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size <= 64 << 10
    resumed = Pipeline(made)
    other = resumed.iterator()
    next(other)
    loaded, load = [], resumed._engine.load
    monkeypatch.setattr(resumed._engine, "load", lambda piece: (loaded.append(1), load(piece))[1])
    tf.train.Checkpoint(data=other).restore(path)
    assert next(other)["whole"].numpy().tolist() == expected[0]
    assert len(loaded) < 20  # what is made ahead; no replay
    assert [next(other)["whole"].numpy().tolist() for _ in range(79)] == expected[1:]
    mine = plan("everything", columns=["whole"], seed=1, data_dir=data_dir)
    third = Pipeline(mine).iterator()
    with pytest.raises(PlanError, match="another plan"):
        tf.train.Checkpoint(data=third).restore(path)


def test_a_checkpoint_keeps_the_augmentation(data_dir, tmp_path):
    augment = my_datasets.augment.standard_image(saturation=0, seed=3)
    options = {"columns": ["grey"], "batch_size": 20, "data_dir": data_dir, "augment": augment}
    iterator = my_datasets.pipeline("everything", **options).iterator()
    next(iterator)
    path = tf.train.Checkpoint(data=iterator).save(tmp_path / "model")
    expected = next(iterator)["grey"].numpy()
    other = my_datasets.pipeline("everything", **options).iterator()
    tf.train.Checkpoint(data=other).restore(path)
    assert np.array_equal(next(other)["grey"].numpy(), expected)


def test_it_knows_how_long_the_consumer_waited(data_dir):
    quick = my_datasets.pipeline("everything", columns=["whole"], batch_size=5, data_dir=data_dir)
    for _ in quick:
        time.sleep(0.01)
    assert quick.stats().steps == 50
    assert quick.stats().share < 0.5
    slow = my_datasets.pipeline("everything", columns=["whole"], batch_size=5, data_dir=data_dir)
    load = slow._engine.load
    slow._engine.load = lambda piece: (time.sleep(0.5), load(piece))[1]
    for _ in slow:
        pass
    assert slow.stats().share > 0.5
    assert slow.stats().waited >= 0.4


def test_the_same_example_is_always_changed_in_the_same_way(data_dir):
    def images(**options):
        train = my_datasets.pipeline(
            "everything", columns=["whole", "grey"], data_dir=data_dir, epochs=2,
            augment=my_datasets.augment.standard_image(saturation=0, seed=3), **options,
        )  # fmt: skip
        found = {}
        for batch in train:
            assert batch["grey"].dtype == tf.float32
            for number, image in zip(batch["whole"].numpy(), batch["grey"].numpy(), strict=True):
                found.setdefault(int(number), []).append(image)
        return found

    some, others = images(batch_size=32), images(batch_size=7, workers=3)
    assert some.keys() == others.keys()
    for number, (first, second) in some.items():
        assert np.allclose(first, others[number][0], atol=1e-5)
        assert np.allclose(second, others[number][1], atol=1e-5)
    different = sum(not np.allclose(first, second, atol=0.02) for first, second in some.values())
    assert different > 200


@pytest.mark.parametrize("changes", [[MixUp(2)], [CutMix(2)], [RandomFlip(), MixUp(2), CutMix(2)]])
def test_what_is_mixed_does_not_depend_on_batches_or_hosts(data_dir, changes):
    """40 examples: each is mixed with the one before it in the epoch, whoever has that one."""

    def images(**options):
        augment = compose(changes, seed=5)
        pipeline = my_datasets.pipeline(
            "photos", image_size=(8, 8), data_dir=data_dir, augment=augment, **options
        )
        found = list(pipeline)
        return [np.concatenate([np.asarray(one[i]) for one in found]) for i in (0, 1)], found

    (wanted, shares), _ = images(batch_size=40)
    for options in ({"batch_size": 16}, {"batch_size": 1}, {"batch_size": 7, "workers": 3},
                    {"batch_size": 16, "drop_remainder": True}, {"batch_size": 64},
                    {"batch_size": 4, "prefetch": 0}):  # fmt: skip
        (found, targets), batches = images(**options)
        assert len(batches[0][0]) == min(40, options["batch_size"])
        assert np.allclose(found, wanted[: len(found)], atol=1e-5)
        assert np.allclose(targets, shares[: len(found)], atol=1e-5)
    for count, batch_size in ((2, 8), (3, 16), (3, 5)):
        hosts = [images(batch_size=batch_size, shard=(i, count))[0] for i in range(count)]
        for i, (found, targets) in enumerate(hosts):
            rows = np.arange(i, count * len(found), count) % 40  # the last ones are the first again
            assert np.allclose(found, wanted[rows], atol=1e-5)
            assert np.allclose(targets, shares[rows], atol=1e-5)
    # In the next epoch, and after a saved position, too.
    whole = my_datasets.pipeline(
        "photos", image_size=(8, 8), data_dir=data_dir, augment=compose(changes, seed=5), epochs=2,
        batch_size=40,
    )  # fmt: skip
    first, second = (np.asarray(images) for images, _ in whole)
    assert np.allclose(first, wanted, atol=1e-5)
    assert not np.allclose(second, wanted, atol=0.1)
    state = dataclasses.replace(whole.state_after(1), position=30)
    (rest, _), _ = images(batch_size=3, state=state, epochs=2)
    assert np.allclose(rest, second[30:], atol=1e-5)


def test_what_mixes_needs_labels(data_dir):
    with pytest.raises(FeatureError, match="as_supervised=True"):
        my_datasets.pipeline("everything", columns=["grey"], augment=compose([MixUp(2)]),
                             data_dir=data_dir)  # fmt: skip


def test_changes_are_what_they_say(data_dir):
    rng = np.random.default_rng(0)
    images = tf.constant(rng.random((64, 12, 10, 3)).astype(np.float32))
    labels = tf.constant(np.arange(64) % 4)
    flip = compose([RandomFlip()])
    draws = flip.numbers(0, np.arange(64))
    found, _ = flip(images, labels, draws)
    for image, changed, draw in zip(images.numpy(), found.numpy(), draws[:, 0], strict=True):
        assert np.array_equal(changed, image[:, ::-1] if draw < 0.5 else image)
    assert 15 < (draws < 0.5).sum() < 49
    same = my_datasets.augment.standard_image(
        flip=False, crop=0, brightness=0, contrast=0, saturation=1e-6, hue=1e-6
    )
    found, _ = same(images, labels, same.numbers(0, np.arange(64)))
    assert np.abs(found.numpy() - images.numpy()).max() < 0.01
    for mix in (MixUp(4), CutMix(4)):
        both = compose([mix])
        draws = both.numbers(0, np.arange(64))
        found, shares = both(images, labels, draws)
        assert found.shape == images.shape
        assert np.allclose(shares.numpy().sum(axis=1), 1)
        assert (shares.numpy().argmax(axis=1) == labels.numpy()).mean() > 0.5
    everything = my_datasets.augment.standard_image(hue=0.2)
    found, _ = everything(images, labels, everything.numbers(1, np.arange(64)))
    assert found.numpy().min() >= 0
    assert found.numpy().max() <= 1


def test_a_damaged_record_is_an_error_that_says_where(data_dir, tmp_path):
    root = shutil.copytree(data_dir, tmp_path / "data")
    (path,) = (root / "everything").glob("[0-9]*")
    shard = sorted(path.glob("*train.tfrecord*of-*[0-9]"))[-1]
    data = bytearray(shard.read_bytes())
    data[-50] ^= 1
    shard.write_bytes(data)
    said = f"(counted from 0) of {shard} is damaged"
    with pytest.raises(tf.errors.OpError) as caught:
        list(my_datasets.pipeline("everything", data_dir=root))
    assert said in str(caught.value)
    for batches in (my_datasets.batches, my_datasets.torch_loader):
        with pytest.raises(CorruptShardError) as raised:
            list(batches("everything", data_dir=root))
        assert said in str(raised.value)


def test_a_damaged_image_is_an_error_that_says_where(tmp_path):
    class Broken(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"image": tfds.features.Image(shape=(None, None, 3))}
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            good = np.zeros((5, 5, 3), np.uint8)
            return {"train": [(0, {"image": good}), (1, {"image": io.BytesIO(b"\xff\xd8\xffno")})]}

    Broken(data_dir=tmp_path).download_and_prepare(build_options=BuildOptions(workers=1))
    with pytest.raises(ExampleError, match=r"'image' of record \d of .*broken-train.tfrecord"):
        my_datasets.source("broken", data_dir=tmp_path).getitems([0, 1])
    with pytest.raises(ExampleError, match="a damaged JPEG file"):
        list(my_datasets.batches("broken", data_dir=tmp_path, image_size=(4, 4)))


def test_sequences_of_images_may_be_empty(tmp_path):
    class Albums(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "pages": tfds.features.Sequence(tfds.features.Image(shape=(4, 3, 3))),
                "maps": tfds.features.Sequence(
                    tfds.features.Tensor(shape=(2,), dtype=np.int16, encoding="zlib")
                ),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
            )

        def _split_generators(self, dl_manager):
            page = np.full((4, 3, 3), 7, np.uint8)
            return {
                "train": [
                    (i, {"pages": [page] * i, "maps": [np.ones(2, np.int16)] * i}) for i in range(3)
                ]
            }

    Albums(data_dir=tmp_path).download_and_prepare(build_options=BuildOptions(workers=1))
    train = my_datasets.pipeline("albums", data_dir=tmp_path, shuffle=False, batch_size=1)
    assert [int(batch["pages"].row_lengths()[0]) for batch in train] == [0, 1, 2]
    assert [batch["maps"].flat_values.dtype for batch in train] == [tf.int16] * 3


def test_a_change_that_draws_nothing(data_dir):
    class Inverted:
        draws = 0

        def __call__(self, images, targets, draws):
            return 1 - images, targets

    options = {"columns": ["grey"], "batch_size": 50, "data_dir": data_dir}
    augment = my_datasets.augment.compose([Inverted()])
    here = my_datasets.pipeline("everything", image_dtype="float32", **options)
    changed = my_datasets.pipeline("everything", augment=augment, **options)
    for batch, other in zip(here, changed, strict=True):
        assert np.allclose(batch["grey"], 1 - other["grey"], atol=1e-5)
