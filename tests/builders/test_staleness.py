"""Prepared data knows which code made it."""

import importlib
import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

from my_datasets import errors
from my_datasets.builders import code_fingerprint
from my_datasets.builders.code_fingerprint import _config, _stable, changes, fingerprint
from my_datasets.builders.source_code import meaning
from my_datasets.building.options import BuildOptions
from my_datasets.metadata.manifest import Manifest

BUILDER = '''
"""A dataset."""
import numpy as np
import tensorflow_datasets as tfds
import my_datasets
from {package} import parsing

class {name}(my_datasets.Builder):
    """{doc}"""
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {{"1.0.0": "First."}}

    def _info(self):
        features = tfds.features.FeaturesDict({{"n": np.{dtype}}})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {{"train": self._generate_examples()}}

    def _generate_examples(self):
        for i in range(20):
            yield i, {{"n": parsing.parse(i)}}  {comment}
'''
PARSING = "def parse(i):\n    return i * {factor}\n"


class Package:
    """A user's package with a builder, whose source can be changed."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory / name
        self.name = name
        self.directory.mkdir()
        (self.directory / "__init__.py").touch()

    def builder(self, data_dir, *, doc="Numbers.", comment="", dtype="int64", factor=1):
        name = f"Stale{self.name.title().replace('_', '')}"
        source = BUILDER.format(package=self.name, name=name, doc=doc, comment=comment, dtype=dtype)
        (self.directory / "builder.py").write_text(source)
        (self.directory / "parsing.py").write_text(PARSING.format(factor=factor))
        for module in [m for m in sys.modules if m.partition(".")[0] == self.name]:
            del sys.modules[module]
        importlib.invalidate_caches()
        cls = getattr(importlib.import_module(f"{self.name}.builder"), name)
        return cls(data_dir=data_dir)


@pytest.fixture
def package(tmp_path, monkeypatch, request):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions within one second
    code_fingerprint._warned.clear()
    return Package(tmp_path, f"pkg_{abs(hash(request.node.name)) % 10**8}")


def test_comments_formatting_and_docstrings_do_not_count(package, tmp_path):
    one = fingerprint(package.builder(tmp_path))
    two = fingerprint(package.builder(tmp_path, doc="Other words.", comment="# why"))
    assert changes(one, two) == []
    assert any(name.endswith(".parsing") for name in one)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"factor": 2}, "the source of {name}.parsing changed"),
        ({"dtype": "int32"}, "the features changed; the source of {name}.builder changed"),
    ],
)
def test_other_code_is_refused_and_said(package, tmp_path, change, said):
    data = tmp_path / "data"
    package.builder(data).download_and_prepare()
    package.builder(data).download_and_prepare()  # the same: nothing to do
    package.builder(data, comment="# a note").download_and_prepare()
    changed = package.builder(data, **change)
    with pytest.raises(errors.StaleDataError) as caught:
        changed.download_and_prepare()
    assert said.format(name=package.name) in str(caught.value)
    assert "raise VERSION" in str(caught.value)
    assert "--overwrite" in str(caught.value)
    overwrite = tfds.download.DownloadConfig(
        download_mode=tfds.download.GenerateMode.REUSE_CACHE_IF_EXISTS
    )
    changed.download_and_prepare(download_config=overwrite)
    changed.download_and_prepare()


def test_modules_that_are_imported_only_while_generating_count(package, tmp_path):
    """Before they were ever imported as after it."""
    builder = package.builder(tmp_path)
    (package.directory / "late.py").write_text("from . import later")
    (package.directory / "later.py").write_text("value = 1")
    source = package.directory / "builder.py"
    text = source.read_text().replace(
        "yield i,", f"from {package.name}.late import later; yield i,"
    )
    source.write_text(text)
    before = fingerprint(builder)
    assert {f"source of {package.name}.{name}" for name in ("late", "later")} <= before.keys()
    importlib.import_module(f"{package.name}.late")
    assert changes(before, fingerprint(builder)) == []
    (package.directory / "later.py").write_text("value = 2")
    assert changes(before, fingerprint(builder)) == [f"the source of {package.name}.later changed"]


class _Plain:
    """Has no text of its own but its address."""

    def __init__(self, value):
        self.value = value


class _Config(tfds.core.BuilderConfig):
    def __init__(self, *, size, **kwargs):
        super().__init__(**kwargs)
        self.size = size


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ({"size": 1}, {"size": 1}, True),
        ({"size": 1}, {"size": 2}, False),
        ({"size": _Plain(1)}, {"size": _Plain(1)}, True),
        ({"size": _Plain(1)}, {"size": _Plain(2)}, False),
        ({"size": [_Plain({1})]}, {"size": [_Plain({2})]}, False),
        ({"size": np.zeros(5000)}, {"size": np.arange(5000) // 4999}, False),
        ({"size": tfds.features.Image()}, {"size": tfds.features.Image()}, True),
        ({"size": tfds.features.Image()}, {"size": tfds.features.Text()}, False),
        ({"size": len}, {"size": len}, True),
        ({"size": len}, {"size": sum}, False),
        ({"size": 1, "description": "Small."}, {"size": 1, "description": "Tiny."}, True),
        ({"size": 1, "name": "a"}, {"size": 1, "name": "b"}, False),
    ],
)
def test_a_config_counts_by_what_it_holds(one, two, same):
    texts = [_config(_Config(**{"name": "it", **values})) for values in (one, two)]
    assert (texts[0] == texts[1]) is same


def test_sets_do_not_depend_on_the_order_of_hashes():
    one, two = {0, 8}, {8, 0}
    assert list(one) != list(two)  # as texts' are in two processes
    assert _stable({"size": one}) == _stable({"size": two})


def test_what_newer_pythons_add_to_syntax_trees_does_not_count():
    """3.12 added `type_params=[]`, 3.13 stopped to write what is empty."""

    assert "[]" not in meaning("def f(): pass\nclass A: pass")
    assert meaning("f(a)") != meaning("f(*a)")
    assert meaning("x = 1") != meaning("x: int = 1")


def test_loading_data_of_other_code_warns_once(package, tmp_path, caplog):
    data = tmp_path / "data"
    package.builder(data).download_and_prepare()
    changed = package.builder(data, factor=3)
    with caplog.at_level(logging.WARNING):
        values = sorted(int(e["n"]) for e in changed.as_dataset(split="train"))
        list(changed.as_dataset(split="train"))
    assert values == list(range(20))
    warnings = [r for r in caplog.records if "prepared by different code" in r.getMessage()]
    assert len(warnings) == 1


def test_a_sample_does_not_pass_for_the_whole(package, tmp_path):
    data = tmp_path / "data"
    sample = tfds.download.DownloadConfig(max_examples_per_split=3)
    package.builder(data).download_and_prepare(download_config=sample)
    package.builder(data).download_and_prepare(download_config=sample)
    with pytest.raises(errors.StaleDataError, match="built with max_examples_per_split=3"):
        package.builder(data).download_and_prepare()
    with pytest.raises(errors.StaleDataError, match="max_examples_per_split=3"):
        package.builder(data).download_and_prepare(build_options=BuildOptions(splits=("train",)))


def test_registering_checksums_makes_nothing_stale(package, tmp_path):
    """A download over HTTP, its checksum registered by the first build."""
    import http.server
    import threading

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"numbers")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/numbers.txt"

    def builder():
        made = package.builder(tmp_path / "data")
        usual = type(made)._split_generators

        def downloading(self, dl_manager):
            dl_manager.download(url)
            return usual(self, dl_manager)

        type(made)._split_generators = downloading
        return made

    (package.directory / "checksums.tsv").touch()
    register = tfds.download.DownloadConfig(register_checksums=True)
    builder().download_and_prepare(download_config=register)
    server.shutdown()
    assert url in (package.directory / "checksums.tsv").read_text()
    builder().download_and_prepare()


def test_data_of_tfds_has_no_manifest_and_is_accepted(package, tmp_path):
    builder = package.builder(tmp_path / "data")
    builder.download_and_prepare()
    (Path(builder.data_dir) / "my_datasets_manifest.json").unlink()
    package.builder(tmp_path / "data", factor=5).download_and_prepare()
    assert Manifest.read(Path(builder.data_dir)) is None


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"format": 99})])
def test_a_manifest_that_cannot_be_understood_is_an_error(tmp_path, content):
    (tmp_path / "my_datasets_manifest.json").write_text(content)
    with pytest.raises(errors.IncompleteVersionError, match="not a manifest of format 2"):
        Manifest.read(tmp_path)
