"""What `features.json` may say: feature classes of TFDS and registered ones, in TFDS's form."""

import contextlib
import copy
import inspect
import json

import numpy as np
import pytest
import tensorflow_datasets as tfds
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

import my_datasets
from my_datasets.errors import (
    IncompleteVersionError,
    InvalidOptionError,
    MyDatasetsError,
    UnregisteredFeatureError,
)
from my_datasets.metadata import feature_classes
from my_datasets.metadata.feature_classes import TFDS_CLASSES, read_features

EVIL = "side_effect.on_import.Feature"
TENSOR = "tensorflow_datasets.core.features.tensor_feature.Tensor"
_DICT = "tensorflow_datasets.core.features.features_dict.FeaturesDict"
_SEQUENCE = "tensorflow_datasets.core.features.sequence_feature.Sequence"


def test_the_list_is_that_of_tfds():
    """A TFDS release with another feature class, or another name of one, fails here."""
    known = tfds.features.FeatureConnector._registered_features
    concrete = {
        name
        for name, one in known.items()
        if one.__module__.startswith("tensorflow_datasets.core.features.")
        and not inspect.isabstract(one)
        and not one.__module__.endswith(("_test", ".test_feature"))
    }
    assert concrete == TFDS_CLASSES


def _tensor(name=EVIL):
    return {"pythonClassName": name, "tensor": {"shape": {}, "dtype": "int64", "encoding": "none"}}


def _dict(**features):
    return {"pythonClassName": _DICT, "featuresDict": {"features": features}}


# Each way in which TFDS comes upon the name of a class.
HIDING_PLACES = {
    "top": _tensor(),
    "in a dict": _dict(a=_tensor()),
    "in snake case": {"python_class_name": EVIL, "tensor": {"dtype": "int64"}},
    "a dict in snake case": {
        "python_class_name": _DICT, "features_dict": {"features": {"a": _tensor()}},
    },
    "in a sequence": {"pythonClassName": _SEQUENCE, "sequence": {"feature": _tensor()}},
    "deep": _dict(a=_dict(b={"pythonClassName": _SEQUENCE, "sequence": {
        "feature": _dict(c=_tensor())}})),
    "of JSON": {"pythonClassName": EVIL, "jsonFeature": {"json": "{}"}},
    "of JSON in snake case": {"python_class_name": EVIL, "json_feature": {"json": "{}"}},
    "within JSON": {"pythonClassName": _SEQUENCE, "jsonFeature": {"json": json.dumps(
        {"feature": _tensor(), "length": None})}},
    "within JSON, of old TFDS": {"pythonClassName": _DICT, "jsonFeature": {"json": json.dumps(
        {"a": {"type": EVIL, "content": {}}})}},
    "of old TFDS": {"type": EVIL, "content": {}},
    "of old TFDS, in a dict": {"type": _DICT, "content": {"a": {"type": EVIL, "content": {}}}},
    "of old TFDS, in a sequence": {"type": _SEQUENCE, "content": {
        "feature": {"type": EVIL, "content": {}}, "length": None}},
    "of old TFDS, with a message": {"type": _SEQUENCE, "proto_cls": "tensorflow_datasets.Sequence",
        "content": json.dumps({"feature": _tensor()})},
    "both forms": {**_tensor(TENSOR), "type": EVIL, "content": {}},
    "named like TFDS": _tensor("tensorflow_datasets.core.features.other.Feature"),
    "a module of TFDS": _tensor("tensorflow_datasets.scripts.cli.main.Feature"),
    "a class of TFDS that is no feature": _tensor(
        "tensorflow_datasets.core.features.feature.TensorInfo"),
}  # fmt: skip


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_an_unregistered_class_is_refused(place, tmp_path):
    (tmp_path / "features.json").write_text(json.dumps(HIDING_PLACES[place]))
    with pytest.raises(UnregisteredFeatureError, match="register_feature") as raised:
        read_features(tmp_path)
    assert str(tmp_path / "features.json") in str(raised.value)
    assert "--imports" in str(raised.value)


def test_the_feature_and_the_class_are_named(tmp_path):
    (tmp_path / "features.json").write_text(json.dumps(_dict(outer=_dict(inner=_tensor()))))
    with pytest.raises(UnregisteredFeatureError, match=f"'outer/inner' is of the class '{EVIL}'"):
        read_features(tmp_path)


def test_arguments_that_tfds_never_writes_are_refused(tmp_path):
    """TFDS would read any file as the names of classes."""
    label = "tensorflow_datasets.core.features.class_label_feature.ClassLabel"
    for feature in (
        {"pythonClassName": label, "jsonFeature": {"json": '{"names_file": "/etc/passwd"}'}},
        {"type": label, "content": {"names_file": "/etc/passwd"}},
    ):
        (tmp_path / "features.json").write_text(json.dumps(feature))
        with pytest.raises(IncompleteVersionError, match="'names_file', which TFDS never writes"):
            read_features(tmp_path)


class Registered(tfds.features.Tensor):
    """A feature class of a user's."""

    def __init__(self):
        super().__init__(shape=(), dtype=np.int64)

    @classmethod
    def from_json_content(cls, value):
        return cls()

    def to_json_content(self):
        return {"type": "rgb"}


def test_a_registered_class_is_accepted(tmp_path, monkeypatch):
    monkeypatch.setattr(feature_classes, "_registered", set())
    tfds.features.FeaturesDict({"a": Registered()}).save_config(tmp_path)
    with pytest.raises(UnregisteredFeatureError):
        read_features(tmp_path)
    assert my_datasets.register_feature(Registered) is Registered
    assert read_features(tmp_path) == json.loads((tmp_path / "features.json").read_text())
    # What it holds itself counts, too.
    features = json.loads((tmp_path / "features.json").read_text())
    inner = features["featuresDict"]["features"]["a"]["jsonFeature"]
    inner["json"] = json.dumps({"inner": _tensor()})
    (tmp_path / "features.json").write_text(json.dumps(features))
    with pytest.raises(UnregisteredFeatureError, match=EVIL):
        read_features(tmp_path)


@pytest.mark.parametrize("what", [Registered.__name__, dict, tfds.features.Text()])
def test_only_feature_classes_are_registered(what):
    with pytest.raises(InvalidOptionError, match="is not a feature class"):
        my_datasets.register_feature(what)


GOOD = tfds.features.FeaturesDict({
    "audio": tfds.features.Audio(),
    "box": tfds.features.BBoxFeature(),
    "image": tfds.features.Image(shape=(2, 2, 3)),
    "label": tfds.features.ClassLabel(names=["a", "b"]),
    "labeled": tfds.features.LabeledImage(labels=3, shape=(None, None, 1)),
    "languages": tfds.features.Translation(languages=["de", "fr"]),
    "many": tfds.features.TranslationVariableLanguages(languages=["de"]),
    "nested": tfds.features.Dataset({"a/b": np.int64}),
    "sequence": tfds.features.Sequence({"x": tfds.features.Scalar(np.float32)}, length=3),
    "tensor": tfds.features.Tensor(shape=(None, 3), dtype=np.uint8, encoding="zlib"),
    "text": tfds.features.Text(doc="A text."),
    "video": tfds.features.Video(shape=(None, 2, 2, 3)),
})  # fmt: skip


def as_file(features):
    """What `features.json` says of them."""
    return json_format.MessageToDict(features.to_proto())


def test_what_tfds_writes_is_read_as_it_is(tmp_path):
    GOOD.save_config(tmp_path)
    assert read_features(tmp_path) == json.loads((tmp_path / "features.json").read_text())


def test_what_tfds_reads_in_another_spelling_is_the_same(tmp_path):
    """A key that our readers pass over must not be one that TFDS reads."""

    def snake(value):
        if isinstance(value, dict):
            back = {camel: one for one, camel in feature_classes._FIELDS.items()}
            return {back.get(name, name): snake(one) for name, one in value.items()}
        return value

    GOOD.save_config(tmp_path)
    whole = json.loads((tmp_path / "features.json").read_text())
    (tmp_path / "features.json").write_text(json.dumps(snake(whole)))
    assert as_file(tfds.features.FeatureConnector.from_config(str(tmp_path))) == whole
    assert read_features(tmp_path) == whole


MUTATED = st.sampled_from([
    None, 0, -1, 1 << 62, "", "x", "10" * 50, True, [], {}, [None], {"a": None}, 1.5, EVIL,
    {"json": "[[["}, "\x1b[2J", {"dimensions": ["1000000", "1000000"]},
])  # fmt: skip


@given(data=st.data())
def test_whatever_it_says_it_is_read_or_refused(data, tmp_path_factory):
    """And our own readers read all that passes."""
    from my_datasets.exporting import version_summary as exported
    from my_datasets.metadata import feature_changes
    from my_datasets.metadata.version_metadata import VersionMetadata

    whole = copy.deepcopy(as_file(GOOD))
    for _ in range(data.draw(st.integers(1, 3))):
        node = whole
        while True:
            name = data.draw(st.sampled_from(sorted(node)))
            inner = node[name]
            if isinstance(inner, dict) and inner and data.draw(st.integers(0, 5)):
                node = inner
                continue
            node[name] = copy.deepcopy(data.draw(MUTATED))
            break
    directory = tmp_path_factory.mktemp("features")
    (directory / "features.json").write_text(json.dumps(whole))
    readers = (
        lambda one: one.features, lambda one: one.known_leaves, lambda one: one.schema_digest,
        exported.features, lambda one: feature_changes.not_in_both(one, one),
    )  # fmt: skip
    for reader in readers:
        with contextlib.suppress(MyDatasetsError):
            reader(VersionMetadata(directory))
