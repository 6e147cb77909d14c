"""Typical mistakes: each is our error, at once, and says what is meant."""

import inspect
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
from my_datasets.input_pipeline.plan.options import PlanOptions, SourceOptions
from my_datasets.input_pipeline.transform.augment import RandomFlip
from my_datasets.records.random_access import RecordReader

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
    (PLANNED, {"memory": -1}, "memory='4GiB'"),
    (PLANNED, {"data_dir": 3}, "a path"),
    (PLANNED, {"crop_area": 0.5}, r"crop_area=\(0.08, 1.0\)"),
    (PLANNED, {"crop_area": (1, 0.5)}, r"crop_area=\(0.08, 1.0\)"),
    ((*PLANNED, "source"), {"missing": None}, "use missing='mask'"),
    ((*PLANNED, "source"), {"missing": "mas"}, "use missing='mask'"),
    (("plan",), {"missing": {"maybe": None}}, "give 'maybe' a number or a text"),
    (("plan",), {"shard": (True, 2)}, r"\(index, count\)"),
    (("plan",), {"tokenizer": {"text": 3}}, r"\{'text': 'words.json'\}"),
    (("plan",), {"tokenizer": {}}, r"\{'text': 'words.json'\}"),
    (("plan",), {"columns": ["whole", "whole"]}, "give 'whole' once"),
    (("plan",), {"columns": "whole, label"}, r"give columns=\['whole', 'label'\]"),
    (("plan",), {"columns": ["inner/x"]}, "choose 'inner', with all that it holds"),
    (("plan",), {"batch_size": 10**30}, "give batch_size=2147483647"),
    (("plan",), {"batch_size": np.array(32)}, "give batch_size=32"),
    (("plan",), {"bucket_window": 10}, "give bucket_by, too"),
    (("plan",), {"cache_dir": "some"}, "give cache='disk'"),
    (("mix",), {"columns": ["whole"]}, r"mix\(\[plan\(..., columns=...\)"),
    (("mix",), {"weight": [3, 1]}, "Did you mean 'weights'"),
    (("mix",), {"weights": "31"}, "a number above 0 for each"),
    (("mix",), {"weights": 3}, "a number above 0 for each"),
    (("mix",), {"weights": ["a", "b"]}, "a number above 0 for each"),
    (("mix",), {"temperature": "hot"}, "a number above 0"),
    (("mix",), {"stop": "frist"}, "use stop='first'"),
    (("pipeline",), {"deadline": "1 min"}, "a number above 0"),
    (("pipeline",), {"deadline": -1}, "a number above 0"),
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
    (READING, {"state": "no state"}, "not a saved position"),
    (("pipeline",), {"augment": RandomFlip()}, r"compose\(\[RandomFlip"),
    (("pipeline",), {"augment": str.upper}, r"standard_image\(\)"),
    ((*PLANNED, "source"), {"image_size": (3, 4), "columns": ["vector"]},
     r"image_size changes nothing(.|\n)*Read: vector(.|\n)*leave image_size out"),
    (("pipeline",), {"augment": my_datasets.augment.standard_image(), "columns": ["grey"]},
     r"standard_image\(saturation=0, hue=0\)"),
    (("pipeline",), {"augment": my_datasets.augment.standard_image(), "columns": ["frames"]},
     "several images in each example"),
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
        monkeypatch.setattr(RecordReader, "read", read)
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
    with pytest.raises(UnknownOptionError, match="needs a dataset"):
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
    with pytest.raises(UnknownOptionError, match=rf"{function}\(plan(.|\n)*remove batch_size"):
        getattr(my_datasets, function)(made, batch_size=3)
    getattr(my_datasets, function)(made, state=made.beginning.to_json())


def test_the_iterator_of_a_pipeline_is_not_saved(data_dir, tmp_path):
    pipeline = my_datasets.pipeline("everything", data_dir=data_dir)
    iterator = iter(pipeline)
    next(iterator)
    checkpoint = tf.train.Checkpoint(data=iterator)
    with pytest.raises(PlanError, match=r"data=pipeline\.iterator\(\)"):
        checkpoint.save(tmp_path / "model")


def _columns(**more):
    return my_datasets.feature_columns.adapt("everything", **more)


fc, augment = my_datasets.feature_columns, my_datasets.augment
# (what is called, what the error says)
CALLS = [
    (lambda: augment.standard_image(flip="yes"), r"standard_image\(flip='yes'\)(.|\n)*flip=True"),
    (lambda: augment.standard_image(crop="a"), "a number from 0 to 1"),
    (lambda: augment.standard_image(hue=3), "a number from 0 to 0.5"),
    (lambda: augment.standard_image(seed=-1), "give seed=0"),
    (lambda: augment.standard_image(seed=None), "a whole number from 0"),
    (lambda: augment.standard_image(brightnes=1), "Did you mean 'brightness'"),
    (lambda: augment.standard_image(0.3), r"augment.standard_image\(...\)(.|\n)*flip, crop"),
    (lambda: augment.compose(RandomFlip()), r"give changes=\[RandomFlip"),
    (lambda: augment.compose([RandomFlip]), r"give RandomFlip\(...\)"),
    (lambda: augment.compose([str.upper]), r"pipeline\(...\).map"),
    (lambda: augment.compose([augment.standard_image()]), "augmentation.changes"),
    (lambda: augment.MixUp("3"), "give classes=3"),
    (lambda: augment.MixUp(3, alpha=0), "a number above 0"),
    (lambda: augment.CutMix(), "augment.CutMix(.|\n)*It takes: classes"),
    (lambda: augment.CutMix(2.0), "give classes=2"),
    (lambda: augment.RandomCrop(2), "from 0 to 1"),
    (lambda: fc.bucketised("10"), "give boundaries=10"),
    (lambda: fc.bucketised(1), "give boundaries=2"),
    (lambda: fc.bucketised([3, 1]), r"give boundaries=\[1.0, 3.0\]"),
    (lambda: fc.bucketised([1, float("nan")]), "increasing numbers"),
    (lambda: fc.bucketised(["a"]), "increasing numbers"),
    (lambda: fc.identity("3"), "give size=3"),
    (lambda: fc.identity(2.5), "a whole number from 1"),
    (lambda: fc.hashed(0), "give size=1"),
    (lambda: fc.hashed(3, embeding=2), "Did you mean 'embedding'"),
    (lambda: fc.vocabulary("abc"), r"give values=\['abc'\]"),
    (lambda: fc.vocabulary(["a", "a"]), "each once"),
    (lambda: fc.vocabulary(["a", 1]), "texts, or of whole numbers"),
    (lambda: fc.vocabulary(embedding="lots"), "or 'auto'"),
    (lambda: fc.crossed(["a", "b"], size=3), r"crossed\('a', 'b', ...\)"),
    (lambda: fc.crossed("a", size=3), "two columns"),
    (lambda: fc.crossed("a", "b", size="3"), "give size=3"),
    (lambda: fc.numeric(normalise="yes"), "give normalise=True"),
    (lambda: fc.numeric(missing="median"), "or 'mean'"),
    (lambda: _columns(columns={"whole": fc.numeric}), r"call it: \{'whole': numeric"),
    (lambda: _columns(columns={"whole": "numeric"}), "feature_columns.numeric"),
    (lambda: _columns(columns=["whole"]), "what becomes of each feature"),
    (lambda: _columns(columns={"whole": fc.identity(3)}, crosses=fc.crossed("a", "b", size=3)),
     r"give crosses=\[crossed"),
    (lambda: _columns(columns={"whole": fc.identity(3)}, targets=""), "Did you mean 'target'"),
    (lambda: _columns(columns={"label": fc.identity(3)}, target="label"), "would see the answer"),
    (lambda: _columns(columns={"text": fc.vocabulary([1, 2])}), "Expected: texts"),
    (lambda: _columns(columns={"whole": fc.vocabulary(["a"])}), "Expected: whole numbers"),
    (lambda: fc.adapt("everything"), "also needs columns"),
    (lambda: fc.load("nowhere"), "FeatureColumns.save"),
    (lambda: my_datasets.text.train_tokenizer("everything", "text", vocab_size=9), "Its options"),
    (lambda: my_datasets.text.train_tokenizer("everything", "text", size="9"), "give size=9"),
    (lambda: my_datasets.text.train_tokenizer("everything"), "also needs column"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_other_functions_say_what_is_meant(data_dir, monkeypatch, number):
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
    call, said = CALLS[number]
    with pytest.raises(MyDatasetsError, match=said):
        call()


def test_errors_name_the_outer_function(data_dir):
    with pytest.raises(MyDatasetsError) as caught:
        fc.adapt("everythin", {"whole": fc.numeric()}, data_dir=data_dir)
    assert caught.value.__notes__ == [
        "Raised by my_datasets.feature_columns.adapt('everythin', ...)"
    ]


@pytest.mark.parametrize("function", READING)
def test_epochs_and_steps_are_whole_numbers(data_dir, function):
    found = getattr(my_datasets, function)("everything", columns=["whole"], data_dir=data_dir)
    for wrong in ("1", 1.0, -1, True, None):
        with pytest.raises(InvalidOptionError, match="set_epoch"):
            found.set_epoch(wrong)
    found.set_epoch(np.int64(2))
    if function == "batches":
        assert found.state().epoch == 2
        return
    asked = found
    for wrong in ("1", 1.5, -1, True, None):
        with pytest.raises(InvalidOptionError, match="state_after"):
            asked.state_after(wrong)
    for steps in (np.int64(3), tf.constant(3), tf.Variable(3)):
        made = found.dataset.plan if function == "torch_loader" else found.plan
        assert my_datasets.batches(made, state=asked.state_after(steps).to_json())


def test_examples_are_numbered(data_dir):
    source = my_datasets.source("everything", columns=["whole"], data_dir=data_dir)
    for wrong in ("a", 1.5, None, True):
        with pytest.raises(InvalidOptionError, match="from 0 to 249"):
            source[wrong]
    with pytest.raises(InvalidOptionError, match="getitems"):
        source[[1, 2]]
    assert source[np.uint8(2)] == source[-248] == source.getitems(np.array([2], np.int32))[0]
    assert source.getitems([]) == []


def test_a_name_that_is_nearly_right(data_dir, tmp_path):
    made = my_datasets.plan("everything", data_dir=data_dir)
    for function in ("plan", "source", "grain_dataset"):
        with pytest.raises(InvalidOptionError, match=r"batches\(plan\)"):
            getattr(my_datasets, function)(made)
    for wrong, said in (
        ("EVERYTHING", "Did you mean 'everything'"), ("everything/1.2.0", "'everything:1.2.0'"),
    ):  # fmt: skip
        with pytest.raises(NotPreparedError, match=said):
            my_datasets.plan(wrong, data_dir=data_dir)
    with pytest.raises(NotPreparedError, match="there is no folder"):
        my_datasets.plan("everything", data_dir=tmp_path / "nowhere")


def test_input_and_target_or_columns(data_dir):
    for function in ("batches", "source"):
        with pytest.raises(InvalidOptionError, match=r"columns=\['whole'\] gives a dict"):
            getattr(my_datasets, function)(
                "everything", as_supervised=True, columns=["whole"], data_dir=data_dir
            )


def test_a_path_without_a_version(tmp_path):
    for function in ("plan", "source"):
        for path in (tmp_path, str(tmp_path)):
            with pytest.raises(NotPreparedError, match="is no prepared version"):
                getattr(my_datasets, function)(path)
    with pytest.raises(InvalidOptionError, match=r"tfds\.builder_from_directory"):
        my_datasets.load(tmp_path)
    with pytest.raises(MyDatasetsError, match="it is empty"):
        my_datasets.batches("")


def test_mixup_knows_how_many_classes_there_are(data_dir):
    mixup = augment.compose([augment.MixUp(5)])
    with pytest.raises(FeatureError, match=r"give MixUp\(classes=2\)"):
        my_datasets.pipeline("photos", image_size=(8, 8), augment=mixup, data_dir=data_dir)


def test_batches_are_no_tf_data(data_dir):
    batches = my_datasets.batches("everything", data_dir=data_dir)
    for name, said in (
        ("shuffle", "give shuffle=True"), ("batch", "give batch_size="), ("repeat", "give epochs="),
        ("map", "to each batch"), ("prefetch", "prefetch="), ("take", "islice"),
        ("state_after", "which has a state"), ("iterator", "which has a state"),
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
def test_splits_of_tfds_are_accepted(data_dir, splits, function):
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
        shuffle=np.True_, image_size=np.array([3, 4]), columns=np.array(["grey"]),
        shard=np.array([0, 2]), memory=np.int64(10**8), crop="random",
        crop_area=[np.float32(0.1), 1], data_dir=data_dir,
    )  # fmt: skip
    assert my_datasets.Plan.from_json(made.to_json()) == made
    mixed = my_datasets.mix([made, made], weights=np.array([3, 1]), temperature=np.float32(2))
    assert my_datasets.Plan.from_json(mixed.to_json()) == mixed
    short = [np.float16(3), np.float16(0.7)]  # by which shares would be rounded
    mixed = my_datasets.mix([made, made], weights=short, temperature=3)
    assert mixed == my_datasets.mix([made, made], weights=list(map(float, short)), temperature=3)
    fills = {"maybe": np.float32(2), "maybe_text": np.str_("x")}
    for missing in (fills, {"maybe": 2}):
        made = my_datasets.plan("everything", columns=[*fills], missing=missing, data_dir=data_dir)
        assert my_datasets.Plan.from_json(made.to_json()) == made
    assert augment.standard_image(seed=np.int64(3)).numbers(0, np.arange(2)).shape == (2, 8)


def test_a_set_of_columns_has_one_order(data_dir):
    made = my_datasets.plan("everything", columns={"whole", "list", "byte"}, data_dir=data_dir)
    assert "['byte', 'list', 'whole']" in made.explain()


def test_a_feature_that_is_not_there(data_dir):
    with pytest.raises(FeatureError, match="Did you mean 'whole'"):
        my_datasets.grain_dataset("everything", columns=["whol"], data_dir=data_dir)


@pytest.mark.parametrize("function", PLANNED)
@pytest.mark.parametrize(
    "options", [{"cache_dir": "s3://bucket/x"}, {"as_supervised": True, "columns": ["label"]}]
)
def test_options_are_checked_before_the_version_is_looked_for(tmp_path, function, options):
    with pytest.raises(InvalidOptionError):
        getattr(my_datasets, function)("nowhere", data_dir=tmp_path, **options)


@pytest.mark.parametrize("declared", [PlanOptions, SourceOptions])
def test_defaults_are_valid(declared):
    for option, one in declared.__annotations__.items():
        rule, default = one.__metadata__
        assert rule(option, default) == default, option


@pytest.mark.parametrize("function", [*PLANNED, "source", "grain_dataset"])
def test_help_shows_every_option_with_type_and_default(function):
    shown = inspect.signature(getattr(my_datasets, function)).parameters
    declared = SourceOptions if function in ("source", "grain_dataset") else PlanOptions
    assert set(declared.__annotations__) <= set(shown)
    assert shown["split"].default == "train"
    assert shown["missing"].default == "tfds"
    if declared is PlanOptions:
        assert (shown["batch_size"].default, shown["batch_size"].annotation) == (32, int)
    assert not any(one.kind is one.VAR_KEYWORD for one in shown.values())
