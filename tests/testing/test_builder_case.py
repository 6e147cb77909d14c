"""A check that cannot fail is worth nothing: each of ours is shown a builder that breaks it."""

import itertools
import os
import unittest

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.builders.base import Builder


class Good(Builder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First."}

    def _info(self):
        desc = tfds.features.Documentation(desc="A number.")
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "a": tfds.features.Scalar(np.int64, doc=desc),
                    "b": tfds.features.Sequence({"c": tfds.features.Scalar(np.int64, doc=desc)}),
                }
            ),
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for key in self.keys():
            yield key, {"a": 1, "b": {"c": [1]}}

    def keys(self):
        return [1, 2, 3]


class DuplicateKeys(Good, skip_registration=True):
    def keys(self):
        return ["one", "two", "one"]


class ChangingKeys(Good, skip_registration=True):
    runs = itertools.count()

    def keys(self):
        return [1, 2, 100 + next(self.runs)]


class MissingKeys(Good, skip_registration=True):
    runs = itertools.count()

    def keys(self):
        return list(range(3 + next(self.runs)))


class InColumns(Good, skip_registration=True):
    def _generate_examples(self):
        for keys in self.keys():
            rows = len(keys)
            yield (
                "key",
                pa.RecordBatch.from_pydict(
                    {"key": keys, "a": [1] * rows, "b": [{"c": [1]}] * rows}
                ),
            )

    def keys(self):
        return [[1, 2], [3]]


class DuplicateKeysInColumns(InColumns, skip_registration=True):
    def keys(self):
        return [[1, 2], [2]]


class KeysFromASet(Good, skip_registration=True):
    def keys(self):
        return {f"key {number}" for number in range(20)}


class FromAFile(Good, skip_registration=True):
    """Reads its keys from the download, as a builder that needs a local file may."""

    def _split_generators(self, dl_manager):
        path = dl_manager.download("https://example.org/keys")
        assert os.path.exists(path)  # noqa: PTH110 - what TFDS's test case refuses
        self.lines = path.read_text().split()
        return super()._split_generators(dl_manager)

    def keys(self):
        return self.lines


class Reading(my_datasets.testing.BuilderTestCase):
    """A user's case with a setting of TFDS, a value of its own, and a helper that reads both."""

    __test__ = False
    DATASET_CLASS = FromAFile
    SPLITS = {"train": 3}
    MOCK_OUT_FORBIDDEN_OS_FUNCTIONS = False
    file_name = "keys"

    def _get_dl_download_result(self, url):
        return self.dummy_data / self.file_name


class NoNotes(Good, skip_registration=True):
    SUPPORTED_VERSIONS = [tfds.core.Version("0.9.0")]


class NoNotesInConfig(Good, skip_registration=True):
    BUILDER_CONFIGS = [
        tfds.core.BuilderConfig(name="full", version="1.0.0"),
        tfds.core.BuilderConfig(name="small", version="1.2.0"),
    ]


class Undocumented(Good, skip_registration=True):
    def _info(self):
        features = {"a": np.int64, "b": tfds.features.Sequence({"c": np.int64})}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))


class BadChecksum(Good, skip_registration=True):
    url_infos = {
        "https://x/y": tfds.download.checksums.UrlInfo(
            size=tfds.core.utils.Size(5), checksum="abc", filename="y"
        )
    }


class UnrecordedDownload(Good, skip_registration=True):
    url_infos = {}

    def _split_generators(self, dl_manager):
        dl_manager.download("https://example.org/data.zip")
        return super()._split_generators(dl_manager)


def run(builder_cls, test: str, tmp_path, **settings) -> unittest.TestResult:
    case = type(
        "Case",
        (my_datasets.testing.BuilderTestCase,),
        {
            "DATASET_CLASS": builder_cls,
            "SPLITS": {"train": 3},
            "EXAMPLE_DIR": str(tmp_path),
            "__test__": False,
            **settings,
        },
    )
    return run_case(case, test)


def run_case(case, test: str) -> unittest.TestResult:
    result = unittest.TestResult()
    unittest.TestSuite([case(test)]).run(result)
    assert result.testsRun == 1
    return result


KEYS = "test_keys_are_unique_and_deterministic"
NOTES = "test_release_notes_for_every_version"
FEATURES = "test_features_are_documented"
CHECKSUMS = "test_checksums_are_well_formed"
BUILD = "test_download_and_prepare_as_dataset"


@pytest.mark.parametrize("test", [KEYS, BUILD])
def test_a_good_builder_in_columns_passes(test, tmp_path):
    result = run(InColumns, test, tmp_path)
    assert result.wasSuccessful(), result.failures + result.errors


@pytest.mark.parametrize("test", [KEYS, NOTES, FEATURES, CHECKSUMS, BUILD])
def test_a_good_builder_passes(test, tmp_path):
    result = run(Good, test, tmp_path)
    assert result.wasSuccessful(), result.failures + result.errors


def test_a_new_process_has_the_settings_of_the_case(tmp_path):
    (tmp_path / "keys").write_text("a b c")
    result = run(
        FromAFile,
        KEYS,
        tmp_path,
        DL_DOWNLOAD_RESULT="keys",
        MOCK_OUT_FORBIDDEN_OS_FUNCTIONS=False,
    )
    assert result.wasSuccessful(), result.failures + result.errors


def test_a_new_process_has_the_methods_and_values_of_a_users_case(tmp_path, monkeypatch):
    (tmp_path / "keys").write_text("a b c")
    monkeypatch.setattr(Reading, "EXAMPLE_DIR", str(tmp_path))
    result = run_case(Reading, KEYS)
    assert result.wasSuccessful(), result.failures + result.errors


@pytest.mark.parametrize(
    ("builder_cls", "test", "message"),
    [
        (DuplicateKeys, KEYS, "the key 'one' twice: at examples 0 and 2"),
        (DuplicateKeysInColumns, KEYS, "the key 2 twice: at examples 1 and 2"),
        (ChangingKeys, KEYS, "example 2 has 100 in one run and 101 in the next"),
        (MissingKeys, KEYS, "example 3 has '(no example)' in one run and 3 in the next"),
        (KeysFromASet, KEYS, "are not deterministic: example "),
        (NoNotes, NOTES, "0.9.0"),
        (NoNotesInConfig, NOTES, "1.2.0"),
        (Undocumented, FEATURES, "['a', 'b/c']"),
        (BadChecksum, CHECKSUMS, "https://x/y has no SHA-256"),
        (UnrecordedDownload, BUILD, "https://example.org/data.zip"),
    ],
)
def test_a_bad_builder_fails_with_the_reason(builder_cls, test, message, tmp_path):
    result = run(builder_cls, test, tmp_path)
    problems = [text for _, text in result.failures + result.errors]
    assert any(message in text for text in problems), problems
