"""Feature columns, against what `tf.feature_column` gives for the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import my_datasets
from my_datasets import feature_columns as fc
from my_datasets.building.options import BuildOptions
from my_datasets.errors import FeatureError, InvalidOptionError
from my_datasets.input_pipeline.transform.feature_columns import learning

KINDS = ["oak", "elm", "fir", "yew"]
N = 500


def row(i):
    rng = np.random.default_rng(i)
    return {
        "price": float(np.float32(rng.normal(50, 20))), "age": int(rng.integers(0, 100)),
        "kind": KINDS[int(rng.integers(4)) * int(rng.integers(2))], "id": i % 7,
        "maybe": None if i % 5 == 0 else float(i), "few": None if i % 4 == 0 else i,
        "wide": None if i % 4 == 0 else float(i), "half": None if i % 4 == 0 else i,
        "word": None if i % 4 == 0 else KINDS[i % 4],
        "small": None if i % 4 == 0 else i % 200, "flag": None if i % 4 == 0 else True,
        "number": i, "list": [1] * (i % 3), "label": i % 3,
    }  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    root = tmp_path_factory.mktemp("table")

    class Trees(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "price": np.float32, "age": np.uint8, "kind": tfds.features.Text(), "id": np.int64,
                "maybe": tfds.features.Scalar(np.float32, optional=True),
                "few": tfds.features.Scalar(np.int32, optional=True),
                "wide": tfds.features.Scalar(np.float64, optional=True),
                "half": tfds.features.Scalar(np.float16, optional=True),
                "word": tfds.features.Scalar(np.str_, optional=True),
                "small": tfds.features.Scalar(np.uint8, optional=True),
                "flag": tfds.features.Scalar(np.bool_, optional=True),
                "number": np.int64, "list": tfds.features.Sequence(np.int64),
                "label": tfds.features.ClassLabel(num_classes=3),
            }  # fmt: skip
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": ((i, row(i)) for i in range(N))}

    Trees(data_dir=root).download_and_prepare(build_options=BuildOptions(workers=1))
    return {"reference": "trees", "data_dir": root}


ROWS = {name: [row(i)[name] for i in range(N)] for name in row(0)}


def of_tensorflow(features, column):
    """Returns what `tf.feature_column` makes of features."""
    with tf.Graph().as_default():
        given = {name: tf.constant([[one] for one in values]) for name, values in features.items()}
        dense = tf.compat.v1.feature_column.input_layer(given, [column])
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tables_initializer())
            return session.run(dense)


def of_ours(table, columns, features, **options):
    found = fc.adapt(**table, columns=columns, **options)
    return {
        name: one.numpy()
        for name, one in found({n: tf.constant(v) for n, v in features.items()}).items()
    }


def test_ranges_are_those_of_tensorflow(table):
    """The example of `tf.feature_column.bucketized_column`, and edges."""
    values = [-1.0, 5.0, 12.5, 101.0, 0.0, 10.0, 100.0]
    theirs = of_tensorflow(
        {"price": values},
        tf.feature_column.bucketized_column(
            tf.feature_column.numeric_column("price"), [0.0, 10.0, 100.0]
        ),
    )
    ours = of_ours(table, {"price": fc.bucketised([0, 10, 100])}, {"price": values})
    assert np.array_equal(ours["price"][:, :-1], theirs)
    assert not ours["price"][:, -1].any()  # theirs has no range for what is missing


def test_categories_are_those_of_tensorflow(table, tmp_path):
    texts = ["oak", "yew", "elm", "no"]
    wanted = of_tensorflow(
        {"kind": texts},
        tf.feature_column.indicator_column(
            tf.feature_column.categorical_column_with_vocabulary_list("kind", KINDS)
        ),
    )
    (tmp_path / "kinds.txt").write_text("\n".join(KINDS) + "\n")
    for column in (fc.vocabulary(KINDS), fc.vocabulary(file=tmp_path / "kinds.txt")):
        ours = of_ours(table, {"kind": column}, {"kind": texts})["kind"]
        assert np.array_equal(ours[:, 1:], wanted)
        assert ours[:, 0].tolist() == [0, 0, 0, 1]  # theirs has nothing for what is unknown
    numbers = [0, 6, 2]
    theirs = of_tensorflow(
        {"id": numbers},
        tf.feature_column.indicator_column(
            tf.feature_column.categorical_column_with_identity("id", 7)
        ),
    )
    ours = of_ours(table, {"id": fc.identity(7)}, {"id": [*numbers, 99]})["id"]
    assert np.array_equal(ours[:3, 1:], theirs)
    assert ours[3].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


def test_hashes_are_those_of_tensorflow(table):
    for name, values, dtype in (("kind", KINDS, tf.string), ("id", [0, 1, 2, 99], tf.int64)):
        theirs = of_tensorflow(
            {name: values},
            tf.feature_column.indicator_column(
                tf.feature_column.categorical_column_with_hash_bucket(name, 10, dtype)
            ),
        )
        assert np.array_equal(of_ours(table, {name: fc.hashed(10)}, {name: values})[name], theirs)


def test_crosses_are_those_of_tensorflow(table):
    """Of ranges: numbered categories have one more in front here, for what is unknown."""
    features = {"age": [3, 20, 70, 50], "price": [5.0, 70.0, 20.0, 49.0]}
    bounds = {"age": [18.0, 65.0], "price": [10.0, 30.0, 50.0]}
    ranges = [
        tf.feature_column.bucketized_column(tf.feature_column.numeric_column(name), values)
        for name, values in bounds.items()
    ]
    theirs = of_tensorflow(
        features, tf.feature_column.indicator_column(tf.feature_column.crossed_column(ranges, 50))
    )
    columns = {name: fc.bucketised(values) for name, values in bounds.items()}
    ours = of_ours(table, columns, features, crosses=[fc.crossed("age", "price", size=50)])
    assert np.array_equal(ours["age_X_price"], theirs)


def test_what_is_learned_is_what_the_data_has(table):
    found = fc.adapt(
        **table,
        columns={
            "price": fc.numeric(normalise=True), "age": fc.bucketised(4),
            "kind": fc.vocabulary(size=3), "id": fc.vocabulary(),
            "maybe": fc.numeric(normalise=True), "few": fc.numeric(missing=-7.0),
        },
    )  # fmt: skip
    batch = {name: tf.constant(ROWS[name]) for name in ("price", "age", "kind", "id")}
    missing = np.array([one is None for one in ROWS["maybe"]])
    least = np.finfo(np.float32).min
    batch["maybe"] = tf.constant([least if one is None else one for one in ROWS["maybe"]])
    nothing = np.iinfo(np.int32).min
    batch["few"] = tf.constant([nothing if one is None else one for one in ROWS["few"]])
    encoded = {name: one.numpy() for name, one in found(batch).items()}
    assert encoded["few"][:, 0].tolist() == [-7 if one is None else one for one in ROWS["few"]]
    price = np.array(ROWS["price"])
    assert np.allclose(encoded["price"][:, 0], (price - price.mean()) / price.std(), atol=1e-4)
    assert abs(encoded["age"].sum(axis=0) / N - 0.25).max() < 0.05
    there = np.array([one for one in ROWS["maybe"] if one is not None])
    assert np.allclose(
        encoded["maybe"][~missing, 0], (there - there.mean()) / there.std(), atol=1e-4
    )
    assert np.allclose(encoded["maybe"][missing], 0)
    names = found.space.preprocessors["kind"].get_vocabulary()
    assert names[:2] == ["[UNK]", "oak"]
    assert len(names) == 4
    assert found.space.preprocessors["id"].vocabulary_size() == 8
    theirs = keras.utils.FeatureSpace({"price": "float_normalized"}, output_mode="dict")
    theirs.adapt(tf.data.Dataset.from_tensor_slices({"price": ROWS["price"]}))
    assert np.allclose(theirs({"price": batch["price"]})["price"], encoded["price"], atol=1e-3)


def test_numbers_that_are_none_are_filled_in(table):
    columns = {"price": fc.numeric(missing=7.0)}
    found = of_ours(table, columns, {"price": [1.5, float("nan")]})["price"]
    assert found[:, 0].tolist() == [1.5, 7.0]


def test_it_is_one_pass(table, monkeypatch):
    from my_datasets.input_pipeline.read.source import ExampleSource

    seen = []
    real = ExampleSource.columns
    monkeypatch.setattr(
        ExampleSource, "columns", lambda self, n, e=0: (seen.extend(n), real(self, n, e))[1]
    )
    fc.adapt(**table, columns={"price": fc.numeric(normalise=True), "kind": fc.vocabulary()})
    assert sorted(seen) == list(range(N))
    seen.clear()
    fc.adapt(**table, columns={"price": fc.numeric(missing=0.0), "kind": fc.vocabulary(KINDS)})
    assert not seen


def encoded(table, columns, **options):
    """What columns make of the whole table, as a pipeline gives it: by name, and who is missing."""
    found = fc.adapt(**table, columns=columns, **options)
    (batch,) = my_datasets.pipeline(
        **table, columns=[*columns, "number"], batch_size=N, shuffle=False, as_supervised=False
    )
    is_missing = batch["number"].numpy() % 4 == 0
    return {name: one.numpy() for name, one in found(batch).items()}, is_missing


@pytest.mark.parametrize("name", ["few", "wide", "half"])
@pytest.mark.parametrize("ranges", [[100, 300], 3])
def test_a_missing_number_is_in_no_range(table, name, ranges):
    found, is_missing = encoded(table, {name: fc.bucketised(ranges)})
    assert found[name].shape == (N, 4)
    assert np.array_equal(found[name][:, 3] == 1, is_missing)
    assert np.array_equal(found[name].sum(axis=1), np.ones(N))
    if ranges == 3:
        assert np.ptp(found[name][:, :3].sum(axis=0)) <= 1
    nan = fc.adapt(**table, columns={"price": fc.bucketised([0.0])})
    ours = nan({"price": tf.constant([-np.inf, -1.0, 0.0, np.nan])})["price"].numpy()
    assert ours.argmax(axis=1).tolist() == [0, 0, 1, 2]


def test_a_missing_category_is_not_another_one(table):
    columns = {
        "word": fc.vocabulary(), "few": fc.vocabulary(), "maybe": fc.numeric(missing=-7.0),
        "wide": fc.numeric(missing=-7.0),
    }  # fmt: skip
    found, is_missing = encoded(table, columns)
    assert np.array_equal(found["word"][:, 0] == 1, is_missing)
    assert np.array_equal(found["few"][:, 0] == 1, is_missing)
    assert np.array_equal(found["wide"][:, 0] == -7, is_missing)
    found, _ = encoded(table, {"few": fc.identity(N)})
    assert np.array_equal(found["few"][:, 0] == 1, is_missing)
    for name in ("word", "few"):
        found, _ = encoded(table, {name: fc.hashed(3)})
        assert found[name].shape == (N, 4)
        assert np.array_equal(found[name][:, 3] == 1, is_missing)
    crossed, _ = encoded(
        table, {"word": fc.hashed(3), "few": fc.bucketised([100])},
        crosses=[fc.crossed("word", "few", size=1 << 20, embedding=1)],
    )  # fmt: skip
    of_missing = set(crossed["word_X_few"][is_missing, 0].tolist())
    assert len(of_missing) == 1
    assert not of_missing & set(crossed["word_X_few"][~is_missing, 0].tolist())


def test_hashes_of_what_is_there_are_those_of_tensorflow(table):
    theirs = of_tensorflow(
        {"word": KINDS},
        tf.feature_column.indicator_column(
            tf.feature_column.categorical_column_with_hash_bucket("word", 10)
        ),
    )
    ours = of_ours(table, {"word": fc.hashed(10)}, {"word": KINDS})["word"]
    assert np.array_equal(ours[:, :10], theirs)


def test_zero_is_a_number(table):
    """And the least one of unsigned numbers, by which TFDS says that they are missing."""
    found = of_ours(table, {"age": fc.numeric(missing=-7.0)}, {"age": [0, 3]})["age"]
    assert found[:, 0].tolist() == [0, 3]
    for name in ("small", "flag"):
        with pytest.raises(FeatureError, match="cannot recognize missing"):
            fc.adapt(**table, columns={name: fc.numeric()})


@pytest.mark.parametrize(
    ("values", "parts", "most"),
    [
        (np.random.default_rng(1).lognormal(0, 3, 100_003), 10, 1),
        (np.random.default_rng(2).poisson(40, 20_000), 5, 1_300),
        (np.concatenate([np.zeros(6_000), np.arange(1, 4_001)]), 4, None),
        (np.repeat([1, 2, 3], [10, 1, 10]), 10, None),
        (np.ones(50), 4, None),
        (np.arange(-5, 5), 10, 0),
    ],
    ids=["skewed", "discrete", "tied", "few", "one", "each"],
)
@pytest.mark.parametrize("at_once", [7_001, 1_000_000])
def test_parts_are_of_about_the_same_size(values, parts, most, at_once):
    values = values.astype(np.float32)
    quantiles = learning.Quantiles()
    for begin in range(0, len(values), at_once):
        quantiles.add(values[begin : begin + at_once])
    boundaries = quantiles.boundaries(parts)
    assert boundaries == sorted(set(boundaries))
    sizes = np.bincount(np.digitize(values, boundaries), minlength=len(boundaries) + 1)
    assert sizes.all()
    assert len(sizes) == min(parts, len(set(values.tolist())))
    if most is not None:
        assert np.ptp(sizes) <= most
    if values[0] == 0 and parts == 4:
        assert sizes[0] == 6_000
        assert np.ptp(sizes[1:]) <= 1


def test_very_many_numbers_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(learning.Quantiles, "_MOST", 10_000)
    values = np.random.default_rng(3).lognormal(0, 3, 200_000).astype(np.float32)
    quantiles = learning.Quantiles()
    for begin in range(0, len(values), 4_096):
        quantiles.add(values[begin : begin + 4_096])
        assert len(quantiles._values) <= 10_000
    sizes = np.bincount(np.digitize(values, quantiles.boundaries(10)))
    assert len(sizes) == 10
    assert abs(sizes / len(values) - 0.1).max() < 0.002


COLUMNS = {
    "price": fc.numeric(normalise=True), "age": fc.bucketised([18, 65]),
    "kind": fc.vocabulary(embedding="auto"), "id": fc.identity(7, embedding=3),
    "maybe": fc.numeric(missing=0.0),
}  # fmt: skip
CROSSES = [fc.crossed("age", "kind", size=16, embedding="auto")]


def test_in_the_pipeline_and_in_the_model(table, tmp_path):
    found = fc.adapt(**table, columns=COLUMNS, crosses=CROSSES, target="label")
    assert found.embeddings == {"kind": 2, "id": 3, "age_X_kind": 2}
    train = my_datasets.pipeline(
        **table, columns=[*COLUMNS, "label"], batch_size=50, epochs=2, as_supervised=False
    )
    before = [encoded["kind"].shape for encoded, _ in train.map(found)]
    assert before == [(50, 1)] * 20
    fed = found.encoded_inputs()
    dense = found.dense(fed)
    assert dense.shape == (None, 1 + 3 + 2 + 3 + 1 + 2)
    head = keras.layers.Dense(3)
    outside = keras.Model(fed, head(dense))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    outside.compile("adam", loss)
    outside.fit(train.map(found), epochs=1, verbose=0)
    raw = keras.Model(found.inputs, head(found.dense(found.encoded)))
    batch = next(iter(train))
    expected = outside(found(batch)[0]).numpy()
    asked = {
        name: tf.cast(batch[name], one.dtype)[:, None] if one.dtype != "string" else
        batch[name][:, None] for name, one in found.inputs.items()
    }  # fmt: skip
    assert np.allclose(raw(asked).numpy(), expected, atol=1e-5)
    raw.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert np.allclose(again(asked).numpy(), expected, atol=1e-5)
    found.save(tmp_path / "columns")
    loaded = fc.load(tmp_path / "columns")
    assert loaded.embeddings == found.embeddings
    assert loaded.target == "label"
    for name, one in loaded(batch)[0].items():
        assert np.array_equal(one.numpy(), found(batch)[0][name].numpy())


@pytest.mark.parametrize(
    ("columns", "crosses", "error", "said"),
    [
        ({"kind": fc.numeric()}, [], FeatureError, "Expected: numbers"),
        ({"price": fc.vocabulary()}, [], FeatureError, "texts or whole numbers"),
        ({"list": fc.numeric()}, [], FeatureError, "sequences of"),
        ({"nothing": fc.numeric()}, [], FeatureError, "no feature 'nothing'"),
        ({"kind": fc.vocabulary(file="no.txt")}, [], FeatureError, "does not exist: no.txt"),
        ({"kind": fc.hashed(3)}, [fc.crossed("kind", "id", size=3)], InvalidOptionError, "'id'"),
    ],
)
def test_what_cannot_be_is_said(table, columns, crosses, error, said):
    with pytest.raises(error, match=said):
        fc.adapt(**table, columns=columns, crosses=crosses)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fc.bucketised([3, 1]), "increasing numbers"), (lambda: fc.bucketised(1), "from 2"),
        (lambda: fc.identity(0), "from 1"), (lambda: fc.hashed(0), "from 1"),
        (lambda: fc.vocabulary(["a", "a"]), "each once"),
        (lambda: fc.crossed("a", size=3), "two columns"),
        (lambda: fc.vocabulary(["a"], embedding=0), r"embedding=0\)"),
        (lambda: fc.vocabulary(["a"], file="b"), "one of them"),
    ],
)  # fmt: skip
def test_declarations_that_make_no_sense(make, said):
    with pytest.raises(InvalidOptionError, match=said):
        make()
