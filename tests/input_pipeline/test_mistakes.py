"""Typical mistakes: each is our error, at once, and says what is meant."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.errors import (
    FeatureError,
    InvalidOptionError,
    MyDatasetsError,
    NotPreparedError,
    PlanError,
    SplitNotFoundError,
    UnknownMethodError,
    UnknownOptionError,
)
from my_datasets.input_pipeline.augment import RandomFlip
from my_datasets.records.reading import Records

PLANNED = ("plan", "pipeline", "batches", "torch_loader")
ALL = (*PLANNED, "source", "load")
READING = ("pipeline", "batches", "torch_loader")

# (the functions that are called, the options, what the error says)
MISTAKES = [
    ((*PLANNED, "load", "mix"), {"batch_size": "32"}, "give batch_size=32"),
    ((*PLANNED, "load", "mix"), {"batch_size": 32.0}, "give batch_size=32"),
    ((*PLANNED, "load", "mix"), {"batch_size": 0}, "give batch_size=1"),
    (PLANNED, {"batch_size": -1}, "give batch_size=1"),
    (PLANNED, {"batch_size": None}, r"single examples come from my_datasets\.source"),
    (PLANNED, {"batch_size": True}, "a whole number from 1"),
    (PLANNED, {"shuffle": "yes"}, "give shuffle=True"),
    (PLANNED, {"shuffle": "no"}, "give shuffle=False"),
    (PLANNED, {"shuffle": 1000}, "give shuffle=True: there is no buffer"),
    ((*PLANNED, "mix"), {"shard": 2}, r"\(index, count\)(.|\n)*shard=\(0, 2\)"),
    (PLANNED, {"shard": "all"}, "use 'auto'"),
    ((*PLANNED, "source"), {"split": ["train", "test"]}, r"split='train\+test'"),
    ((*PLANNED, "source"), {"split": None}, "give one split"),
    ((*PLANNED, "source"), {"split": "trian"}, "Did you mean 'train'"),
    ((*PLANNED, "source"), {"columns": "vector"}, r"give columns=\['vector'\]"),
    ((*PLANNED, "source"), {"columns": ["vektor"]}, "Did you mean 'vector'"),
    ((*PLANNED, "source"), {"image_size": 224}, r"give image_size=\(224, 224\)"),
    ((*PLANNED, "source"), {"image_size": "224"}, r"give image_size=\(224, 224\)"),
    (PLANNED, {"seed": -1}, "give seed=0"),
    (PLANNED, {"seed": 1.5}, "a whole number from 0"),
    ((*PLANNED, "mix"), {"epochs": 0}, "give epochs=1"),
    (PLANNED, {"epochs": "3"}, "give epochs=3"),
    (PLANNED, {"epochs": float("inf")}, "or None for no end"),
    (PLANNED, {"prefetch": "a lot"}, "a whole number from 0"),
    (PLANNED, {"prefetch": tf.data.AUTOTUNE}, "give prefetch=0"),
    (PLANNED, {"workers": "all"}, "a whole number"),
    (PLANNED, {"drop_remainder": "true"}, "give drop_remainder=True"),
    (PLANNED, {"cache": True}, "use cache='memory'"),
    (PLANNED, {"cache": "memroy"}, "use cache='memory'"),
    (PLANNED, {"crop": "centre"}, "use crop='center'"),
    (PLANNED, {"image_dtype": np.float32}, "use image_dtype='float32'"),
    (PLANNED, {"tokenizer": "words.json"}, r"\{'text': 'words.json'\}"),
    (PLANNED, {"memory": 1.5}, "memory='4GiB'"),
    (PLANNED, {"data_dir": 3}, "a path"),
    # Names that are none, or those of others.
    (PLANNED, {"batchsize": 32}, "Did you mean 'batch_size'"),
    (PLANNED, {"num_workers": 4}, "Did you mean workers=?"),
    (PLANNED, {"num_epochs": 4}, "Did you mean epochs=?"),
    (PLANNED, {"drop_last": True}, "Did you mean drop_remainder=?"),
    (PLANNED, {"buffer_size": 1000}, "Did you mean shuffle=?"),
    (PLANNED, {"foo": 1}, "Its options: .*batch_size"),
    (("batches", "torch_loader"), {"augment": None}, r"an option of pipeline\(\.\.\.\)"),
    (("source",), {"image_sise": (3, 3)}, "Did you mean 'image_size'"),
    (("source",), {"batch_size": 3}, "Its options"),
    (("load",), {"shuffle": True}, "Did you mean 'shuffle_files'"),
    (("load",), {"as_supervised": "yes"}, "give as_supervised=True"),
    (READING, {"state": 7}, "pipeline.state_after"),
    (READING, {"state": "no state"}, "no saved position"),
    (("pipeline",), {"augment": RandomFlip()}, r"compose\(\[RandomFlip"),
    (("pipeline",), {"augment": str.upper}, r"standard_image\(\)"),
    (("pipeline",), {"augment": my_datasets.augment.standard_image(), "columns": ["grey"]},
     r"standard_image\(saturation=0, hue=0\)"),
    (("pipeline",), {"sharding": "exakt"}, "use sharding='exact'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        pytest.param(one, options, said, id=f"{one}({', '.join(map('='.join, [[k, str(v)] for k, v in options.items()]))})")  # noqa: E501
        for functions, options, said in MISTAKES
        for one in functions
    ],
)  # fmt: skip
def test_a_mistake_is_an_error_that_says_what_is_meant(
    data_dir, monkeypatch, function, options, said
):
    def read(*_):
        raise AssertionError("records are read")

    if not options.keys() & {"augment"}:
        monkeypatch.setattr(Records, "read", read)
    what = ["everything", "everything"] if function == "mix" else "everything"
    place = {} if function == "mix" else {"data_dir": data_dir}
    with pytest.raises(MyDatasetsError, match=said) as caught:
        getattr(my_datasets, function)(what, **{**place, **options})
    notes = getattr(caught.value, "__notes__", [])
    named = f"{function}(" in str(caught.value)
    assert named or any(f"my_datasets.{function}(" in note for note in notes)
    assert len(str(caught.value).splitlines()) <= 6
    if isinstance(caught.value, UnknownOptionError):
        assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("function", ALL)
@pytest.mark.parametrize("what", [None, 3, ["everything"], {"a": 1}])
def test_what_is_no_dataset(data_dir, function, what):
    with pytest.raises(InvalidOptionError, match=rf"{function}\(reference=(.|\n)*my-datasets list"):
        getattr(my_datasets, function)(what, data_dir=data_dir)


@pytest.mark.parametrize("function", ALL)
def test_how_it_is_called(data_dir, function):
    call = getattr(my_datasets, function)
    with pytest.raises(UnknownOptionError, match=r"'everything', split='train'\)"):
        call("everything", "train", data_dir=data_dir)
    with pytest.raises(UnknownOptionError, match="not told of which dataset"):
        call(data_dir=data_dir)


def test_a_builder_and_a_dataset_are_no_names(data_dir):
    (path,) = (data_dir / "everything").glob("[0-9]*")
    builder = tfds.builder_from_directory(path)
    with pytest.raises(InvalidOptionError, match=rf"give pathlib\.Path\('{path}'\)"):
        my_datasets.batches(builder)
    my_datasets.batches(pathlib.Path(path))
    with pytest.raises(InvalidOptionError, match="my-datasets list"):
        my_datasets.pipeline(tf.data.Dataset.range(3))
    with pytest.raises(InvalidOptionError, match=r"give mix\(\['everything'"):
        my_datasets.mix("everything")


@pytest.mark.parametrize("function", [*PLANNED, "source"])
def test_a_name_with_a_typo(data_dir, function):
    with pytest.raises(NotPreparedError, match="Did you mean 'everything'") as caught:
        getattr(my_datasets, function)("everythign", data_dir=data_dir)
    assert caught.value.__notes__ == [f"Raised by my_datasets.{function}('everythign', ...)"]
    with pytest.raises(NotPreparedError, match="Did you mean 'titanic'"):
        getattr(my_datasets, function)("titanik", data_dir=data_dir)


@pytest.mark.parametrize("function", READING)
def test_a_plan_has_its_options(data_dir, function):
    made = my_datasets.plan("everything", data_dir=data_dir)
    with pytest.raises(UnknownOptionError, match=rf"{function}\(plan(.|\n)*not taken: batch_size"):
        getattr(my_datasets, function)(made, batch_size=3)
    getattr(my_datasets, function)(made, state=made.beginning.to_json())


def test_the_iterator_of_a_pipeline_is_not_saved(data_dir, tmp_path):
    pipeline = my_datasets.pipeline("everything", data_dir=data_dir)
    iterator = iter(pipeline)
    next(iterator)
    checkpoint = tf.train.Checkpoint(data=iterator)
    with pytest.raises(PlanError, match=r"data=pipeline\.iterator\(\)"):
        checkpoint.save(tmp_path / "model")


def test_batches_are_no_tf_data(data_dir):
    batches = my_datasets.batches("everything", data_dir=data_dir)
    for name, said in (
        ("shuffle", "give shuffle=True"), ("batch", "give batch_size="), ("repeat", "give epochs="),
        ("map", "to each batch"), ("prefetch", "prefetch="), ("take", "islice"),
    ):  # fmt: skip
        with pytest.raises(UnknownMethodError, match=rf"no method {name}\(\)(.|\n)*{said}"):
            getattr(batches, name)
        assert not hasattr(batches, name)
    with pytest.raises(AttributeError, match="no attribute 'foo'"):
        batches.foo  # noqa: B018


@pytest.fixture(scope="module")
def splits(data_dir):
    """Splits as TFDS has them, and the examples that TFDS gives for each."""
    (path,) = (data_dir / "everything").glob("[0-9]*")
    builder = tfds.builder_from_directory(path)
    instruction = tfds.core.ReadInstruction
    found = [
        tfds.Split.TRAIN,
        instruction("train", to=10, unit="%"),
        instruction("train", from_=-10, unit="abs") + instruction("test"),
        instruction("train", from_=55, unit="%", rounding="pct1_dropremainder"),
        instruction("train", from_=1, to=2, unit="shard"),
        *tfds.even_splits("train", n=3),
        *tfds.even_splits("train+test", n=2, drop_remainder=True),
    ]
    return [
        (split, sorted(int(one["whole"]) for one in builder.as_dataset(split=split)))
        for split in found
    ]


@pytest.mark.parametrize("function", [*PLANNED, "source", "load"])
def test_splits_of_tfds_are_taken(data_dir, splits, function):
    call = getattr(my_datasets, function)
    for split, wanted in splits:
        found = call("everything", split=split, columns=["whole"], data_dir=data_dir) if (
            function != "load"
        ) else call("everything", split=split, data_dir=data_dir)  # fmt: skip
        if function == "plan":
            assert found == my_datasets.Plan.from_json(found.to_json())
            found = my_datasets.batches(found)
        numbers = [np.asarray(one["whole"]).reshape(-1) for one in found]
        assert sorted(np.concatenate(numbers).tolist()) == wanted
    if function != "load":
        instruction = tfds.core.ReadInstruction("trian", to=10, unit="%")
        with pytest.raises(SplitNotFoundError, match="The splits: train, test"):
            call("everything", split=instruction, data_dir=data_dir)
        with pytest.raises(InvalidOptionError, match="give one split"):
            call("everything", split=tfds.even_splits("train", n=3), data_dir=data_dir)


def test_numbers_of_numpy_are_numbers(data_dir):
    made = my_datasets.plan(
        "everything", batch_size=np.int64(16), epochs=np.int32(2), seed=np.uint8(3),
        shuffle=np.True_, image_size=[np.int64(3), 4], columns=("grey",), shard=[0, 2],
        data_dir=data_dir,
    )  # fmt: skip
    assert my_datasets.Plan.from_json(made.to_json()) == made


def test_a_feature_that_is_not_there(data_dir):
    with pytest.raises(FeatureError, match="Did you mean 'whole'"):
        my_datasets.grain_dataset("everything", columns=["whol"], data_dir=data_dir)
