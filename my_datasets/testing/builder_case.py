"""`BuilderTestCase`: TFDS's test of a builder, with additional checks."""

import concurrent.futures
import inspect
import itertools
import multiprocessing
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias, TypeVar
from unittest import mock

import tensorflow_datasets as tfds
from etils import epath

from my_datasets import resources
from my_datasets.builders.base import Builder
from my_datasets.building.collector import batches, with_keys

_SHA256 = re.compile(r"[0-9a-f]{64}")


Config: TypeAlias = "str | tfds.core.BuilderConfig | None"
Examples = Iterable[tuple[object, object]]
# The keys of each split.
Keys = dict[str, list[object]]
_Method = TypeVar("_Method", bound=Callable[..., object])


def _not_a_test(method: _Method) -> _Method:
    method.__test__ = False  # type: ignore[attr-defined]  # what pytest looks for
    return method


class BuilderTestCase(tfds.testing.DatasetBuilderTestCase):
    """Tests a builder on dummy data, without a network.

    Set `DATASET_CLASS` and `SPLITS` as for `tfds.testing.DatasetBuilderTestCase`, all of whose
    checks apply. For the datasets of this package, `EXAMPLE_DIR` defaults to the top-level
    `dummy_data/<name>/`; `Builder.embedded_file` returns files from there, by file name.

    Beyond TFDS's checks:

    * keys are unique within a split, and the same in two runs: in this process, and in a new one,
      which orders sets differently;
    * the recorded checksums are well formed, and exist for every embedded file;
    * every version, including supported ones and those of configs, has release notes;
    * every leaf feature has a documentation text.

    For example:

        class DigitsTest(my_datasets.testing.BuilderTestCase):
            DATASET_CLASS = digits_dataset_builder.Builder
            SPLITS = {"train": 16, "test": 4}
    """

    __test__ = False  # tells pytest to collect only derived classes

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "__test__" not in cls.__dict__:
            cls.__test__ = True

    @classmethod
    def setUpClass(cls) -> None:
        """Sets the dummy data directory for this package's own datasets."""
        builder_cls = cls.DATASET_CLASS
        if cls.EXAMPLE_DIR is None and builder_cls is not None:
            source = builder_cls.code_path
            if source is not None and resources.is_packaged(Path(source)):
                cls.EXAMPLE_DIR = str(resources.dummy_data_dir(builder_cls.name))
        super().setUpClass()

    def setUp(self) -> None:
        """Serves embedded source files from the dummy data."""
        super().setUp()
        if issubclass(self.dataset_class, Builder):
            patcher = mock.patch.object(self.dataset_class, "embedded_file", self._dummy_file)
            patcher.start()
            self.patchers.append(patcher)

    @_not_a_test
    def test_session(self, *args: object, **kwargs: object) -> object:
        """TensorFlow's helper of that name; without this override pytest reports it as skipped."""
        return super().test_session(*args, **kwargs)

    def _dummy_file(self, name: str) -> epath.Path:
        recorded = {info.filename for info in (self.dataset_class.url_infos or {}).values()}
        self.assertIn(name, recorded, "This embedded file has no line in the checksums file.")
        path = self.dummy_data / name
        self.assertTrue(path.exists(), f"Dummy data is missing: {path}.")
        return path

    def test_registered(self) -> None:
        """TFDS finds this very class by its name."""
        # TFDS's own version of this test imports all public builders to search their names.
        self.assertIs(tfds.builder_cls(self.builder.name), self.dataset_class)

    def test_keys_are_unique_and_deterministic(self) -> None:
        """No key occurs twice in a split, and two runs yield the same keys in the same order."""
        for config in self._configs():
            with self.subTest(config=config):
                first = self._keys(config)
                for split, keys in first.items():
                    self._assert_unique(split, keys)
                for run_again in (self._keys, self._keys_in_a_new_process):
                    other = run_again(config)
                    self.assertEqual(list(first), list(other), "The splits differ in two runs.")
                    for split, keys in first.items():
                        self._assert_same_keys(split, keys, other[split])

    def test_checksums_are_well_formed(self) -> None:
        """Each recorded URL has a positive size and a hexadecimal SHA-256."""
        for url, info in (self.dataset_class.url_infos or {}).items():
            with self.subTest(url=url):
                self.assertGreater(
                    int(info.size), 0, f"The recorded size of {url} is not positive."
                )
                self.assertRegex(info.checksum, _SHA256, f"{url} has no SHA-256.")

    def test_release_notes_for_every_version(self) -> None:
        """Every version that the builder offers has release notes."""
        for config in self._configs():
            builder = self._make_builder(config=config)
            missing = {str(version) for version in builder.versions} - set(builder.release_notes)
            self.assertEmpty(missing, "RELEASE_NOTES has no entry for these versions.")

    def test_features_are_documented(self) -> None:
        """Every leaf feature has a description."""
        for config in self._configs():
            features = self._make_builder(config=config).info.features
            missing = [path for path, leaf in _leaves(features) if not leaf.doc.desc]
            self.assertEmpty(
                missing,
                "These features have no description; give them "
                "doc=tfds.features.Documentation(desc=...).",
            )

    def _configs(self) -> list[Config]:
        names = [config.name for config in self.dataset_class.BUILDER_CONFIGS]
        return self.BUILDER_CONFIG_NAMES_TO_TEST or names or [None]

    def _keys(self, config: Config) -> Keys:
        builder = self._make_builder(config=config)
        if "pipeline" in inspect.signature(builder._split_generators).parameters:
            self.skipTest("The keys of a Beam pipeline are known only when it runs.")
        with self._dummy_downloads():
            manager = tfds.download.DownloadManager(download_dir=self.tmp_dir)
            splits: dict[str, Examples] = builder._split_generators(manager)
            if not all(isinstance(examples, Iterable) for examples in splits.values()):
                self.skipTest("The keys of a Beam pipeline are known only when it runs.")
            return {name: _keys_in(examples) for name, examples in splits.items()}

    def _keys_in_a_new_process(self, config: Config) -> Keys:
        settings = {name: getattr(self, name) for name in _SETTINGS}
        settings["EXAMPLE_DIR"] = str(self.dummy_data)
        case_cls = pickle.dumps(type(self)) if _is_picklable(type(self)) else None
        # A fork of this process would inherit its order of sets, and TensorFlow's threads. The fork
        # server has its own hash seed, and imports TensorFlow once for all cases of a test run.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tensorflow", __name__])
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
            return executor.submit(
                _keys_of, case_cls, _own_values(type(self)), settings, config
            ).result()

    @contextmanager
    def _dummy_downloads(self) -> Iterator[None]:
        with mock.patch.multiple(
            tfds.download.DownloadManager,
            download_and_extract=self._get_dl_extract_result,
            download=self._get_dl_download_result,
            extract=self._get_dl_extract_only_result,
            download_kaggle_data=self._get_dl_download_kaggle_result,
            download_checksums=self._download_checksums,
            manual_dir=self.dummy_data,
        ):
            yield

    def _assert_unique(self, split: str, keys: list[object]) -> None:
        seen: dict[object, int] = {}
        for position, key in enumerate(keys):
            if key in seen:
                self.fail(
                    f"Split {split!r} has the key {key!r} twice: at examples {seen[key]} and "
                    f"{position}."
                )
            seen[key] = position

    def _assert_same_keys(self, split: str, first: list[object], second: list[object]) -> None:
        pairs = itertools.zip_longest(first, second, fillvalue="(no example)")
        for position, (one, other) in enumerate(pairs):
            if one != other:
                self.fail(
                    f"The keys of split {split!r} are not deterministic: example {position} has "
                    f"{one!r} in one run and {other!r} in the next."
                )


# The class attributes that TFDS reads.
_SETTINGS = [name for name in vars(tfds.testing.DatasetBuilderTestCase) if name.isupper()]


def _own_values(case_cls: type[BuilderTestCase]) -> dict[str, object]:
    """Returns the picklable class attributes, other than functions, that users' classes define."""
    users = case_cls.mro()[: case_cls.mro().index(BuilderTestCase)]
    return {
        name: value
        for cls in reversed(users)
        for name, value in vars(cls).items()
        if not (name.startswith("__") or inspect.isroutine(value)) and _is_picklable(value)
    }


def _is_picklable(value: object) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


def _keys_of(
    case_cls: bytes | None,
    values: Mapping[str, object],
    settings: Mapping[str, object],
    config: Config,
) -> Keys:
    """Returns the keys by split, from a copy of a test case.

    Args:
      case_cls: The pickled class. None, or not found in this process, for a class that was defined
        in a function; its methods are then missing.
      values: What the class defines besides methods.
      settings: The values of what TFDS reads.
      config: The builder config.
    """
    base = BuilderTestCase
    if case_cls is not None:
        with suppress(ImportError, AttributeError):
            base, values = pickle.loads(case_cls), {}  # noqa: S301 - made by this test
    copy: type[BuilderTestCase] = type("Case", (base,), {**values, **settings})
    copy.setUpClass()
    case = copy("test_keys_are_unique_and_deterministic")
    case.setUp()
    try:
        return case._keys(config)
    finally:
        case.tearDown()
        copy.tearDownClass()


def _keys_in(examples: Examples) -> list[object]:
    """Returns the keys of all examples, including those in record batches."""
    keys: list[object] = []
    for _, batch in batches(iter(examples), None, lambda item: item):
        if isinstance(batch, tuple):
            of_batch, columns = batch
            keys += with_keys(of_batch, columns, (), "under test")[0].to_pylist()
        else:
            keys += [key for key, _ in batch]
    return keys


def _leaves(
    feature: tfds.features.FeatureConnector, path: str = ""
) -> Iterator[tuple[str, tfds.features.FeatureConnector]]:
    """Yields `(path, feature)` for each feature that has values itself."""
    if isinstance(feature, (tfds.features.Translation, tfds.features.TranslationVariableLanguages)):
        return  # TFDS does not support documentation for these
    if isinstance(feature, tfds.features.FeaturesDict):
        for name, child in feature.items():
            yield from _leaves(child, f"{path}/{name}" if path else name)
    elif isinstance(feature, (tfds.features.Sequence, tfds.features.Dataset)) and isinstance(
        feature.feature, tfds.features.FeaturesDict
    ):
        yield from _leaves(feature.feature, path)
    else:
        yield path, feature
