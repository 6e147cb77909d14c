"""Records of every kind of feature, against TFDS's own connectors and serialiser."""

import errno
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorflow_datasets.core import example_parser, example_serializer

import my_datasets
from my_datasets import errors
from my_datasets.builders.encode import media_columns
from my_datasets.builders.encode.encoder import ExampleEncoder
from my_datasets.builders.encode.scalar_columns import check_readable
from my_datasets.building.collector import rough_size
from my_datasets.building.options import BuildOptions
from my_datasets.building.units import InvalidValue
from my_datasets.records import tfrecord
from tests.records.oracle import in_order

F = tfds.features
DTYPES = [
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, np.float32, np.float64,
]  # fmt: skip


def by_tfds(features, examples):
    serializer = example_serializer.ExampleSerializer(features.get_serialized_info())
    return [in_order(serializer.get_tf_example(features.encode_example(x))) for x in examples]


def arrays(dtype, shape):
    if np.dtype(dtype).kind != "f":
        return hnp.arrays(dtype, shape)
    # From bytes: Hypothesis has no quick way to floats of 16 bits that are not NaN.
    return hnp.arrays(f"u{np.dtype(dtype).itemsize}", shape).map(
        lambda bits: np.nan_to_num(np.asarray(bits).view(dtype)).reshape(np.shape(bits))
    )


def dicts(**features):
    return F.FeaturesDict(features)


TEXT = st.one_of(st.text(max_size=20), st.binary(max_size=20))
FRAMES = hnp.arrays(np.uint8, (2, 4, 4, 3))

# (features, a strategy of examples)
CASES = {
    **{
        f"scalar {np.dtype(dtype)}": (dicts(x=F.Scalar(dtype)), {"x": arrays(dtype, ())})
        for dtype in DTYPES
    },
    **{
        f"tensor {np.dtype(dtype)}": (
            dicts(x=F.Tensor(shape=(2, 3), dtype=dtype)),
            {"x": arrays(dtype, (2, 3))},
        )
        for dtype in DTYPES
    },
    "python numbers": (
        dicts(i=F.Scalar(np.int32), f=np.float32, b=np.bool_, u=np.uint8),
        {
            "i": st.integers(-(2**31), 2**31 - 1),
            "f": st.one_of(st.floats(width=32, allow_nan=False), st.integers(-9, 9)),
            "b": st.booleans(),
            "u": st.integers(0, 255),
        },
    ),
    "unknown dimension": (
        dicts(x=F.Tensor(shape=(None, 2), dtype=np.int64)),
        {"x": st.integers(0, 4).flatmap(lambda n: arrays(np.int64, (n, 2)))},
    ),
    "unknown dimensions": (
        dicts(x=F.Tensor(shape=(None, None), dtype=np.int32, encoding="zlib")),
        {"x": arrays(np.int32, hnp.array_shapes(min_dims=2, max_dims=2))},
    ),
    "bytes encoding": (
        dicts(x=F.Tensor(shape=(3,), dtype=np.float32, encoding="bytes")),
        {"x": arrays(np.float32, (3,))},
    ),
    "text": (dicts(a=F.Text(), b=F.Tensor(shape=(), dtype=np.str_)), {"a": TEXT, "b": TEXT}),
    "labels": (
        dicts(a=F.ClassLabel(names=["no", "yes"]), b=F.ClassLabel(num_classes=3)),
        {"a": st.sampled_from(["no", "yes", 0, 1, -1]), "b": st.integers(-1, 2)},
    ),
    "sequences": (
        dicts(
            a=F.Sequence(np.int64), b=F.Sequence(F.Text()), c=F.Sequence(F.Sequence(np.float32)),
            d=F.Sequence(F.ClassLabel(num_classes=2)), e=F.Sequence(np.uint8, length=2),
        ),
        {
            "a": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
            "b": st.lists(st.text(max_size=5), max_size=4),
            "c": st.lists(st.lists(st.floats(width=32, allow_nan=False), max_size=3), max_size=3),
            "d": st.lists(st.integers(0, 1), max_size=3),
            "e": st.lists(st.integers(0, 255), min_size=2, max_size=2),
        },
    ),
    "nested": (
        dicts(
            a={"b": np.int64, "c": {"d": F.Text()}},
            objects=F.Sequence({"box": F.BBoxFeature(), "name": F.Text()}),
        ),
        {
            "a": st.fixed_dictionaries(
                {"b": st.integers(0, 9), "c": st.fixed_dictionaries({"d": st.text(max_size=5)})}
            ),
            "objects": st.lists(
                st.fixed_dictionaries(
                    {"box": st.just(F.BBox(0.1, 0.2, 0.5, 1.0)), "name": st.text(max_size=5)}
                ),
                max_size=3,
            ),
        },
    ),
    "neighbouring names": (
        F.FeaturesDict(
            {"a": {"x": np.int64, "xy": np.int64}, "a-b": np.int64, "a0": np.int64, "B": np.int64}
        ),
        {
            "a": st.fixed_dictionaries({"x": st.integers(0, 9), "xy": st.integers(0, 9)}),
            "a-b": st.integers(0, 9), "a0": st.integers(0, 9), "B": st.integers(0, 9),
        },
    ),
    "optional": (
        dicts(
            x=F.Scalar(np.int64, optional=True), y=F.Scalar(np.int64),
            text=F.Scalar(np.str_, optional=True), old=F.Text(optional=True),
            v=F.Tensor(shape=(2,), dtype=np.float32, optional=True),
            e=F.Tensor(shape=(2,), dtype=np.float32, optional=True, encoding="zlib"),
        ),
        {
            "x": st.one_of(st.none(), st.integers(0, 999)), "y": st.integers(0, 9),
            "text": st.one_of(st.none(), st.text(max_size=9)),
            "old": st.one_of(st.none(), st.text(max_size=9)),
            "v": st.one_of(st.none(), arrays(np.float32, (2,))),
            "e": st.one_of(st.none(), arrays(np.float32, (2,))),
        },
    ),
    "steps": (
        dicts(
            steps=F.Dataset({"action": np.int64, "seen": F.Tensor(shape=(2,), dtype=np.float32)})
        ),
        {
            "steps": st.lists(
                st.fixed_dictionaries(
                    {"action": st.integers(0, 9), "seen": arrays(np.float32, (2,))}
                ),
                min_size=1, max_size=3,
            )
        },
    ),
    "audio": (
        dicts(x=F.Audio(sample_rate=8000)),
        {"x": st.integers(1, 20).flatmap(lambda n: arrays(np.int64, (n,)))},
    ),
    "translation": (
        dicts(x=F.Translation(["en", "de"])),
        {"x": st.fixed_dictionaries({"en": st.text(max_size=5), "de": st.text(max_size=5)})},
    ),
    "translations": (
        dicts(x=F.TranslationVariableLanguages(["en", "de"])),
        {"x": st.fixed_dictionaries({"en": st.text(max_size=5), "de": st.text(max_size=5)})},
    ),
    "encoded images": (dicts(x=F.Image()), {"x": st.binary(min_size=1, max_size=50)}),
    "jpeg arrays": (
        dicts(x=F.Image(shape=(4, 4, 3), encoding_format="jpeg")),
        {"x": hnp.arrays(np.uint8, (4, 4, 3))},
    ),
    "float images": (
        dicts(x=F.Image(shape=(4, 4, 1), dtype=np.float32)),
        {"x": arrays(np.float32, (4, 4, 1))},
    ),
    "no dict": (F.Sequence({"n": np.int64}), {"n": st.lists(st.integers(0, 9), max_size=5)}),
    "video": (dicts(x=F.Video(shape=(None, 4, 4, 3))), {"x": FRAMES}),
}  # fmt: skip


def unframed(records):
    return [r[tfrecord.HEADER : -tfrecord.FOOTER] for r in records.to_pylist()]


@pytest.mark.parametrize("case", CASES)
def test_records_are_those_of_tfds_with_sorted_keys(case):
    features, parts = CASES[case]
    encoder = ExampleEncoder(features)

    @given(st.lists(st.fixed_dictionaries(parts), min_size=1, max_size=5))
    def check(examples):
        assert unframed(encoder.rows(examples)) == by_tfds(features, examples)

    check()


@given(
    st.sampled_from([np.uint8, np.uint16]),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
    st.sampled_from([1, 3, 4]),
)
def test_images_given_as_arrays_decode_to_themselves(dtype, sizes, channels):
    """The files may differ from those of TFDS's encoder, the pixels may not."""
    features = dicts(x=F.Image(shape=(None, None, channels), dtype=dtype))
    rng = np.random.default_rng(0)
    images = [
        rng.integers(0, np.iinfo(dtype).max + 1, (*size, channels)).astype(dtype) for size in sizes
    ]
    records = unframed(ExampleEncoder(features).rows([{"x": image} for image in images]))
    for image, record in zip(images, records, strict=True):
        assert (features.deserialize_example(record)["x"].numpy() == image).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_columns_of_images_give_the_bytes_of_rows(dtype):
    features = dicts(x=F.Image(shape=(None, None, 1), dtype=dtype))
    images = np.random.default_rng(0).integers(0, 255, (5, 3, 4, 1)).astype(dtype)
    files = [tf.io.encode_png(image).numpy() for image in images]
    encoder = ExampleEncoder(features)
    expected = unframed(encoder.rows([{"x": image} for image in images]))
    pixels = pa.list_(pa.list_(pa.list_(pa.from_numpy_dtype(dtype), 1), 4), 3)
    for column in (
        pa.array(images.tolist(), pixels),
        pa.array(images.tolist()),  # lists of any length, and of int64
        pa.FixedShapeTensorArray.from_numpy_ndarray(images),
    ):
        assert unframed(encoder.columns(pa.RecordBatch.from_pydict({"x": column}))) == expected
    ragged = [images[0].tolist(), images[1, :2].tolist()]
    assert unframed(encoder.columns(pa.RecordBatch.from_pydict({"x": ragged}))) == unframed(
        encoder.rows([{"x": images[0]}, {"x": images[1, :2]}])
    )
    by_file = [by_tfds(features, [{"x": file}])[0] for file in files]
    for kind in (pa.binary(), pa.large_binary()):
        batch = pa.RecordBatch.from_pydict({"x": pa.array(files, kind)})
        assert unframed(encoder.columns(batch)) == by_file


def test_paths_of_images_become_their_files(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(tf.io.encode_png(np.zeros((2, 2, 3), np.uint8)).numpy())
    features = dicts(x=F.Image())
    examples = [{"x": str(path)}, {"x": path}]
    assert unframed(ExampleEncoder(features).rows(examples)) == by_tfds(features, examples)


COLUMNS = dicts(
    b=np.bool_, i=np.int16, f=np.float32, d=np.float64, u=np.uint64,
    text=F.Text(), raw=F.Tensor(shape=(), dtype=np.str_),
    label=F.ClassLabel(names=["no", "yes"]), number=F.ClassLabel(num_classes=3),
    tensor=F.Tensor(shape=(2, 2), dtype=np.uint8), open=F.Tensor(shape=(None, 2), dtype=np.int64),
    ints=F.Sequence(np.int32), texts=F.Sequence(F.Text()), nested=F.Sequence({"z": np.int64}),
)  # fmt: skip
ROW = st.fixed_dictionaries(
    {
        "b": st.booleans(),
        "i": st.integers(-(2**15), 2**15 - 1),
        "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "u": st.integers(0, 2**64 - 1),
        "text": st.text(max_size=9),
        "raw": st.binary(max_size=9),
        "label": st.sampled_from(["no", "yes"]),
        "number": st.integers(-1, 2),
        "tensor": st.lists(st.integers(0, 255), min_size=4, max_size=4),
        "open": st.lists(st.lists(st.integers(0, 300), min_size=2, max_size=2), max_size=3),
        "ints": st.lists(st.integers(-5, 500), max_size=3),
        "texts": st.lists(st.text(max_size=5), max_size=3),
        "nested": st.lists(st.fixed_dictionaries({"z": st.integers(0, 9)}), max_size=2),
    }
)
SCHEMA = pa.schema(
    {
        "b": pa.bool_(), "i": pa.int64(), "f": pa.float32(), "d": pa.float64(), "u": pa.uint64(),
        "text": pa.string(), "raw": pa.large_binary(), "label": pa.string(), "number": pa.int8(),
        "tensor": pa.list_(pa.uint8(), 4), "open": pa.list_(pa.list_(pa.int64(), 2)),
        "ints": pa.large_list(pa.int32()), "texts": pa.list_(pa.string()),
        "nested": pa.list_(pa.struct({"z": pa.int64()})),
    }
)  # fmt: skip


@given(st.lists(ROW, min_size=1, max_size=6))
def test_columns_give_the_bytes_of_rows(rows):
    as_rows = [
        {
            **row,
            "tensor": np.array(row["tensor"], np.uint8).reshape(2, 2),
            "open": np.array(row["open"], np.int64).reshape(-1, 2),
        }
        for row in rows
    ]
    expected = by_tfds(COLUMNS, as_rows)
    encoder = ExampleEncoder(COLUMNS)
    assert unframed(encoder.rows(as_rows)) == expected
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    assert unframed(encoder.columns(batch)) == expected
    if len(rows) > 1:
        assert unframed(encoder.columns(batch.slice(1))) == expected[1:]


OPTIONAL = dicts(
    n=F.Scalar(np.int32, optional=True), text=F.Scalar(np.str_, optional=True),
    v=F.Tensor(shape=(2,), dtype=np.float32, optional=True),
)  # fmt: skip
OPTIONAL_ROW = st.fixed_dictionaries(
    {
        "n": st.one_of(st.none(), st.integers(0, 500)),
        "text": st.one_of(st.none(), st.text(max_size=5)),
        "v": st.one_of(st.none(), st.lists(st.floats(width=32, allow_nan=False), min_size=2,
            max_size=2)),
    }
)  # fmt: skip


@given(st.lists(OPTIONAL_ROW, min_size=1, max_size=6))
def test_nulls_of_columns_are_those_of_rows(rows):
    schema = pa.schema({"n": pa.int64(), "text": pa.large_string(), "v": pa.list_(pa.float32(), 2)})
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    found = unframed(ExampleEncoder(OPTIONAL).columns(batch))
    assert found == by_tfds(OPTIONAL, rows)
    for row, record in zip(rows, found, strict=True):
        decoded = OPTIONAL.deserialize_example_np(record)
        assert [decoded[name] is None for name in row] == [row[name] is None for name in row]


@pytest.mark.parametrize(
    ("feature", "column", "found"),
    [
        (F.Scalar(np.int8), [1, 300], "a column of int64"),
        (F.Scalar(np.int64), [1.0, 2.5], "values of type double"),
        (F.Scalar(np.int64), [1, None], "null"),
        (F.Text(), [1, 2], "values of type int64"),
        (F.ClassLabel(names=["a"]), ["a", "z"], "the label 'z'"),
        (F.ClassLabel(num_classes=2), [0, 2], "the label .*2"),
        (F.Tensor(shape=(2,), dtype=np.int64), [[1, 2], [3]], "1 values"),
        (F.Tensor(shape=(2,), dtype=np.int64), [1, 2], "one int64 for each row"),
        (F.Sequence(np.int64, length=1), [[1], [1, 2]], "2 values"),
        (F.Sequence(np.int64), [[1], [None]], "null"),
        (F.Sequence(np.int64), [[[1], [2]]], "a column of list<item: list"),
        (F.Tensor(shape=(2, 3), dtype=np.int64), [[[1], [2, 3, 4, 5, 6]]], "a list of 1 values"),
        (F.Tensor(shape=(2, 3), dtype=np.int64), [[[1, 2], [3, 4], [5, 6]]], "a list of 3 values"),
        (F.Tensor(shape=(None, 3), dtype=np.int64), [[[1, 2], [3, 4]]], "a list of 2 values"),
        (F.Tensor(shape=(None, 3), dtype=np.int64), [[1, 2, 3]], "a column of list"),
        (F.Tensor(shape=(2, 2), dtype=np.int64), [[[1, 2], None]], "null inside a list"),
        (F.Image(shape=(1, 2, 1)), [[[[1], [256]]]], "a column of list"),
        (F.Image(shape=(1, 2, 1)), [[[[1], [2], [3]]]], "a column of list"),
        (F.Image(shape=(None, None, 1)), [[[[1], [2]], [[3]]]], "a column of list"),
    ],
)
def test_a_column_that_does_not_fit_is_named(feature, column, found):
    encoder = ExampleEncoder(dicts(x=feature))
    with pytest.raises(InvalidValue) as caught:
        encoder.columns(pa.RecordBatch.from_pydict({"x": column}))
    assert caught.value.feature == "x"
    import re

    assert re.search(found, caught.value.found)


def test_missing_columns_are_named():
    with pytest.raises(InvalidValue) as caught:
        ExampleEncoder(dicts(x=np.int64)).columns(pa.RecordBatch.from_pydict({"y": [1]}))
    assert caught.value.expected == "the columns ['x']"
    assert caught.value.found == "the columns ['y']"


@pytest.mark.parametrize(
    ("item", "path", "found"),
    [
        ({"a": {"b": "x"}, "s": []}, "a/b", "x (str)"),
        ({"a": {"b": 1}, "s": [1, "y"]}, "s[1]", "y (str)"),
        ({"a": {"c": 1}, "s": []}, "a", "the keys ['c']"),
        ({"a": {"b": 1}}, "", "the keys ['a']"),
        (5, "", "5 (int)"),
    ],
)
def test_a_row_that_does_not_fit_is_located(item, path, found):
    encoder = ExampleEncoder(dicts(a={"b": np.int64}, s=F.Sequence(np.int64)))
    with pytest.raises(InvalidValue) as caught:
        encoder.row(item)
    assert caught.value.feature == path
    assert caught.value.found.startswith(found)
    assert caught.value.__cause__ is not None


def test_large_values_count_as_large_whatever_encodes_them():
    """A batch is closed by its size."""
    features = dicts(audio=F.Audio(), image=F.Image(), text=F.Text(), list=F.Sequence(np.int64))
    example = {
        "audio": np.zeros(5000, np.int64), "image": np.zeros((50, 50, 3), np.uint8),
        "text": "x" * 5000, "list": [1] * 1000,
    }  # fmt: skip
    owned = ExampleEncoder(features).own(example)
    assert all(rough_size(value) >= 5000 for value in owned.values()), owned.keys()


def test_a_large_example_of_features_that_are_no_dict_counts_as_large():
    owned = ExampleEncoder(F.Sequence({"n": np.int64})).own({"n": [1] * 5000})
    assert rough_size(owned) >= 5000


OPTIONALS = {
    "text": (lambda: F.Text(optional=True), "abc"),
    "int": (lambda: F.Scalar(np.int64, optional=True), 3),
    "string": (lambda: F.Scalar(np.str_, optional=True), "q"),
    "bool": (lambda: F.Scalar(np.bool_, optional=True), True),
    "float": (lambda: F.Scalar(np.float64, optional=True), 1.5),
    "half": (lambda: F.Scalar(np.float16, optional=True), np.float16(1.5)),
    "unsigned": (lambda: F.Scalar(np.uint64, optional=True), 7),
    "tensor": (
        lambda: F.Tensor(shape=(2, 1), dtype=np.float32, optional=True), np.float32([[1], [2]])
    ),
    "strings": (
        lambda: F.Tensor(shape=(2,), dtype=np.str_, optional=True), np.array(["a", "b"], object)
    ),
    "unknown": (
        lambda: F.Tensor(shape=(None,), dtype=np.float32, optional=True), np.float32([1, 2])
    ),
    "zlib": (
        lambda: F.Tensor(shape=(2,), dtype=np.float32, optional=True, encoding="zlib"),
        np.float32([1, 2]),
    ),
}  # fmt: skip
AROUND = {
    "plain": (lambda feature: feature, lambda value: value),
    "dict": (
        lambda feature: F.FeaturesDict({"a": feature, "b": np.int64}),
        lambda value: {"a": value, "b": 1},
    ),
    "sequence": (F.Sequence, lambda value: [value, value]),
    "sequence of dicts": (lambda feature: F.Sequence({"a": feature}), lambda value: [{"a": value}]),
    "sequences": (lambda feature: F.Sequence(F.Sequence(feature)), lambda value: [[value], []]),
    "dataset": (lambda feature: F.Dataset({"a": feature}), lambda value: [{"a": value}]),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", OPTIONALS)
def test_optional_features_are_read_by_tfds_or_refused(kind, around):
    """By its reader that knows the code, and by the one that knows `features.json` only."""
    make, value = OPTIONALS[kind]
    wrap, wrapped = AROUND[around]
    features = F.FeaturesDict({"x": wrap(make())})
    is_refused = False
    try:
        check_readable(features, "toy")
    except errors.BuilderError:
        is_refused = True
    readable = []
    for given_value in (value, None):
        try:
            info = features.get_serialized_info()
            record = example_serializer.ExampleSerializer(info).serialize_example(
                features.encode_example({"x": wrapped(given_value)})
            )
        except (TypeError, ValueError):
            readable.append(None)  # which fails at the example
            continue
        saved = F.FeatureConnector.from_json(features.to_json())
        readable += [_is_read_by_tfds(one, record) for one in (features, saved)]
    assert is_refused == (False in readable or readable == [None, None])


def _is_read_by_tfds(features, record):
    try:
        parser = example_parser.ExampleParser(features.get_serialized_info())
        read = features.decode_example(parser.parse_example(record))["x"]
        if isinstance(read, tf.data.Dataset):
            list(read)
    except (tf.errors.InvalidArgumentError, TypeError, ValueError):
        return False
    return True


def test_a_builder_is_refused_before_it_downloads(tmp_path):
    class Optional(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = "toy_optional"

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=dicts(x=F.Text(optional=True)))

        def _split_generators(self, dl_manager):
            raise NotImplementedError

    with pytest.raises(errors.BuilderError, match=r"Scalar\(np.str_, optional=True\)"):
        Optional(data_dir=tmp_path).download_and_prepare()


PIXELS = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 255)).map(
    lambda drawn: np.full((drawn[0], drawn[1], 3), drawn[2], np.uint8)
)


@given(
    st.lists(
        st.tuples(
            PIXELS,
            st.sampled_from(["array", "path", "Path", "bytes", "file", "memmap", "fortran", "PIL"]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_bytes_of_an_image_do_not_depend_on_its_neighbours(tmp_path_factory, drawn, owned):
    folder = tmp_path_factory.mktemp("images")
    encoder = ExampleEncoder(dicts(image=F.Image(), n=np.int64))

    def given_as(pixels, kind, i):
        (file,) = media_columns.encode_png(pixels[None])
        path = folder / f"{i}.png"
        path.write_bytes(file)
        return {
            "array": lambda: pixels, "path": lambda: str(path), "Path": lambda: path,
            "bytes": lambda: file, "file": lambda: io.BytesIO(file),
            "memmap": lambda: _on_disk(folder / f"{i}.npy", pixels),
            "fortran": lambda: np.asfortranarray(pixels),
            "PIL": lambda: PIL.Image.fromarray(pixels),
        }[kind]()  # fmt: skip

    def examples(numbers):
        found = [{"image": given_as(*drawn[i], i), "n": i} for i in numbers]
        return [encoder.own(one) for one in found] if owned else found

    numbers = range(len(drawn))
    alone = [bytes(encoder.row(examples([i])[0])[0].as_py()) for i in numbers]
    together = [record.as_py() for record in encoder.rows(examples(numbers))]
    assert together == alone
    for i, (pixels, kind) in enumerate(drawn):
        if kind in ("array", "fortran"):  # as where all are arrays, which is how it always was
            plain = ExampleEncoder(dicts(image=F.Image(), n=np.int64))
            assert together[i] == plain.rows([{"image": np.array(pixels), "n": i}])[0].as_py()


def _on_disk(path, pixels):
    mapped = np.memmap(path, pixels.dtype, "w+", shape=pixels.shape)
    mapped[:] = pixels
    return mapped


class Failing(F.FeatureConnector):
    """Whose encoding fails as it is told."""

    def __init__(self, fail):
        super().__init__()
        self.fail = fail

    def get_tensor_info(self):
        return F.TensorInfo(shape=(), dtype=np.int64)

    def encode_example(self, value):
        if value == 1:
            self.fail()
        return value


def _raise(error):
    raise error


def _run_missing():
    subprocess.run(["no_such_program"], check=True)


def _as_tfds_runs_ffmpeg():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        tfds.core.utils.image_utils.ffmpeg_run(["-version"])


def _killed():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    try:
        subprocess.run([sys.executable, "-c", code], check=True)
    except subprocess.CalledProcessError as error:
        raise ValueError("the program failed") from error


NOT_OF_THE_EXAMPLE = {
    "program": (_run_missing, errors.MissingDependencyError, "program no_such_program"),
    "ffmpeg": (_as_tfds_runs_ffmpeg, errors.MissingDependencyError, "apt-get install ffmpeg"),
    "module": (
        lambda: __import__("no_such_module"), errors.MissingDependencyError,
        "The module no_such_module is needed for encoding .*, and is not installed",
    ),
    "module that is named": (
        lambda: _raise(errors.MissingDependencyError("what it is")),
        errors.MissingDependencyError, r"\Awhat it is\Z",
    ),
    "ours": (lambda: _raise(errors.FeatureError("what it is")), errors.FeatureError, "what it is"),
    "library": (
        lambda: _raise(ImportError("libGL.so.1: cannot open")), errors.MissingDependencyError,
        "libGL",
    ),
    "killed": (_killed, ValueError, "the program failed"),
    "memory": (lambda: _raise(MemoryError("no more")), MemoryError, "no more"),
    "disk": (lambda: _raise(OSError(errno.ENOSPC, "full")), OSError, "full"),
    "files": (lambda: _raise(OSError(errno.EMFILE, "many")), OSError, "many"),
    "permission": (lambda: _raise(PermissionError(errno.EACCES, "no")), PermissionError, "no"),
    "network": (lambda: _raise(ConnectionError("gone")), ConnectionError, "gone"),
    "store": (
        lambda: _raise(tf.errors.UnavailableError(None, None, "busy")),
        tf.errors.UnavailableError, "busy",
    ),
}  # fmt: skip
OF_THE_EXAMPLE = {
    "value": lambda: _raise(ValueError("no")),
    "file": lambda: Path("no_such_file").read_bytes(),
    "folder": lambda: Path("/").read_bytes(),
    "no path": lambda: Path("a" * 5000).read_bytes(),
    "below a file": lambda: Path(__file__, "below").read_bytes(),
    "image": lambda: PIL.Image.open(io.BytesIO(b"none")),
    "truncated": lambda: _raise(OSError("image file is truncated")),
    "not in store": lambda: _raise(tf.errors.NotFoundError(None, None, "no")),
    "program's verdict": lambda: subprocess.run([sys.executable, "-c", "1/0"], check=True),
}


@pytest.mark.parametrize("way", ["row", "own"])
@pytest.mark.parametrize("fault", NOT_OF_THE_EXAMPLE)
def test_a_fault_of_the_machine_is_no_misfit(fault, way):
    fail, kind, said = NOT_OF_THE_EXAMPLE[fault]
    encoder = ExampleEncoder(dicts(x=Failing(fail)))
    with pytest.raises(kind, match=said):
        getattr(encoder, way)({"x": 1})


@pytest.mark.parametrize("fault", OF_THE_EXAMPLE)
def test_a_fault_of_the_example_is_one(fault):
    encoder = ExampleEncoder(dicts(x=Failing(OF_THE_EXAMPLE[fault])))
    with pytest.raises(InvalidValue) as caught:
        encoder.row({"x": 1})
    assert caught.value.feature == "x"
    assert encoder.own({"x": 1})["x"].invalid is not None


@pytest.mark.parametrize("workers", [1, 2])
def test_a_missing_ffmpeg_ends_a_build_that_sets_examples_aside(tmp_path, workers, monkeypatch):
    """By a film of TFDS's feature, in the builder's process and in workers."""
    film = tmp_path / "film.mp4"
    film.write_bytes(b"a film")
    monkeypatch.setenv("PATH", str(tmp_path))

    class Films(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = "toy_films"

        def _info(self):
            features = dicts(film=F.Video(shape=(None, 2, 2, 3)))
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self.units(self._generate_examples, [0, 1])}

        def _generate_examples(self, unit):
            for i in range(3):
                yield f"{unit}-{i}", {"film": str(film)}

    options = BuildOptions(on_error="quarantine", max_quarantined=1.0, workers=workers)
    with pytest.raises(errors.MissingDependencyError, match="The program ffmpeg is needed"):
        Films(data_dir=tmp_path / "data").download_and_prepare(build_options=options)
