"""What of a package counts as the source code of a builder: what it uses, name by name."""

import ast
import importlib
import json
import sys
import textwrap
import time

import pytest
import tensorflow_datasets as tfds
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.builders import code_fingerprint, source_code
from my_datasets.builders.code_fingerprint import changes_since, fingerprint, source_parts
from my_datasets.metadata.manifest import Manifest

BUILDER = """
import numpy as np
import tensorflow_datasets as tfds
import my_datasets
{imports}

class Builder{number}(my_datasets.Builder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict({{"n": np.int64}})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {{"train": self._generate_examples()}}

    def _generate_examples(self):
        {body}
        yield 0, {{"n": 0}}
"""
_numbers = iter(range(10**6))


class Package:
    """A package of somebody's, as files."""

    def __init__(self, folder, monkeypatch):
        self.name = f"package_{next(_numbers)}_of_tests"
        self.folder = folder / self.name
        self.folder.mkdir()
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        self.write("__init__", "")
        self.number = next(_numbers)

    def write(self, module, source):
        path = self.folder.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source).replace("PKG", self.name))

    def builder_class(self, imports, body="helper()", modules=None):
        for module, source in (modules or {}).items():
            self.write(module, source)
        self.write("builder", BUILDER.format(imports=imports, body=body, number=self.number))
        importlib.invalidate_caches()
        return getattr(importlib.import_module(f"{self.name}.builder"), f"Builder{self.number}")

    def parts(self, cls):
        return {part.module.removeprefix(f"{self.name}."): part for part in source_parts(cls)}

    def hashes(self, cls):
        return {module: part.sha256 for module, part in self.parts(cls).items()}


@pytest.fixture
def package(tmp_path, monkeypatch):
    return Package(tmp_path, monkeypatch)


HELPERS = """
    '''Documentation.'''
    FACTOR = 2

    def helper():
        return FACTOR

    def unrelated():
        return OTHER

    OTHER = 3
"""


@pytest.mark.parametrize(
    ("imports", "body"),
    [
        ("from PKG.helpers import helper", "helper()"),
        ("from PKG.helpers import helper as h", "h()"),
        ("from .helpers import helper", "helper()"),
        ("from PKG import helpers", "helpers.helper()"),
        ("import PKG.helpers", "PKG.helpers.helper()"),
        ("import PKG.helpers as h", "h.helper()"),
        ("from PKG.helpers import *", "helper()"),
        ("", "from PKG.helpers import helper; helper()"),
        ("", "import PKG.helpers; PKG.helpers.helper()"),
    ],
)
def test_what_is_used_counts_and_what_is_not_does_not(package, imports, body):
    imports, body = (text.replace("PKG", package.name) for text in (imports, body))
    cls = package.builder_class(imports, body, {"helpers": HELPERS, "other": "x = 1"})
    before = package.hashes(cls)
    part = package.parts(cls)["helpers"]
    assert (part.names, part.left_out) == (("FACTOR", "helper"), ("OTHER", "unrelated"))
    assert "other" not in before
    for text, new, counts in (
        ("OTHER = 3", "OTHER = 4", False),
        ("return OTHER", "return OTHER + 1", False),
        ("Documentation.", "Other words.", False),
        ("FACTOR = 2", "FACTOR = 2  # why", False),
        ("    FACTOR = 2\n", "    FACTOR = (\n        2\n    )\n", False),
        ("FACTOR = 2", "FACTOR = 5", True),
        ("return FACTOR", "return FACTOR + 1", True),
    ):
        changed = HELPERS.replace(text, new)
        assert changed != HELPERS
        package.write("helpers", changed)
        assert (package.hashes(cls) != before) is counts, new
    package.write("helpers", HELPERS)
    assert package.hashes(cls) == before


@pytest.mark.parametrize(
    ("imports", "body", "modules", "edit"),
    [
        # Through inheritance, from another module.
        (
            "from PKG.child import Child", "Child().run()",
            {"child": "from PKG.base import Base\nclass Child(Base): pass",
             "base": "class Base:\n    def run(self): return 1"},
            ("base", "return 1", "return 2"),
        ),
        # By a decorator, and what it uses.
        (
            "from PKG.helpers import helper", "helper()",
            {"helpers": "from PKG.marks import mark\n@mark\ndef helper(): return 1",
             "marks": "def mark(f): return wrapped(f)\ndef wrapped(f): return lambda: 1"},
            ("marks", "lambda: 1", "lambda: 2"),
        ),
        # In an attribute of a class.
        (
            "from PKG.config import Config", "Config.size",
            {"config": "from PKG.sizes import SMALL\nclass Config:\n    size = SMALL",
             "sizes": "SMALL = 1"},
            ("sizes", "SMALL = 1", "SMALL = 2"),
        ),
        # A value that other statements change.
        (
            "from PKG.tables import TABLE", "TABLE['a']",
            {"tables": "TABLE = {}\nTABLE['a'] = 1"},
            ("tables", "= 1", "= 2"),
        ),
        (
            "from PKG.tables import TABLE", "TABLE['a']",
            {"tables": "TABLE = {}\nfor i in range(3):\n    TABLE.setdefault('a', i)"},
            ("tables", "range(3)", "range(4)"),
        ),
        # What registers itself, in a module that is imported for nothing else.
        (
            "from PKG.registry import KINDS\nimport PKG.kinds", "KINDS['one']()",
            {"registry": "KINDS = {}\ndef register(f):\n    KINDS[f.__name__] = f\n    return f",
             "kinds": "from PKG.registry import register\n@register\ndef one(): return 1"},
            ("kinds", "return 1", "return 2"),
        ),
        # Names that only a run knows: the module counts whole.
        (
            "from PKG import helpers", "getattr(helpers, 'hel' + 'per')()",
            {"helpers": "def helper(): return 1"},
            ("helpers", "return 1", "return 2"),
        ),
        (
            "from PKG.helpers import any_of", "any_of('helper')",
            {"helpers": "def any_of(name): return globals()[name]()\ndef helper(): return 1"},
            ("helpers", "return 1", "return 2"),
        ),
        (
            "import importlib", "importlib.import_module('PKG.helpers').helper()",
            {"helpers": "def helper(): return 1"},
            ("helpers", "return 1", "return 2"),
        ),
        # Through the names of a package.
        (
            "import PKG.inner as i", "i.helper()",
            {"inner.__init__": "from .helpers import helper",
             "inner.helpers": "def helper(): return 1"},
            ("inner.helpers", "return 1", "return 2"),
        ),
        # From another module than before, with the same name.
        (
            "from PKG.helpers import helper", "helper()",
            {"helpers": "from math import floor as f\ndef helper(): return f(1.5)"},
            ("helpers", "import floor", "import ceil"),
        ),
        # Defined under a condition.
        (
            "from PKG.helpers import helper", "helper()",
            {"helpers": "try:\n    import none\nexcept ImportError:\n    def helper(): return 1"},
            ("helpers", "return 1", "return 2"),
        ),
        # Renamed.
        (
            "from PKG.helpers import helper", "helper()",
            {"helpers": "def helper(): return inner()\ndef inner(): return 1"},
            ("helpers", "inner", "renamed"),
        ),
        # What registers itself beside what is used: by a decorator, by a call, in a loop.
        *(
            (
                "from PKG.registry import KINDS\nfrom PKG.kinds import NAME", "KINDS[NAME]()",
                {"registry": "KINDS = {}\ndef register(f):\n    KINDS['one'] = f\n    return f",
                 "kinds": "from PKG.registry import register\nNAME = 'one'\n" + registered},
                ("kinds", "return 1", "return 2"),
            )
            for registered in (
                "@register\ndef one(): return 1",
                "def one(): return 1\nregister(one)",
                "def one(): return 1\nfor f in (one,):\n    register(f)",
            )
        ),
        # What is found by its base.
        (
            "from PKG.base import all_of", "all_of()",
            {"base": "class Base: pass\nclass One(Base):\n    size = 1\n"
                     "def all_of(): return [one.size for one in Base.__subclasses__()]"},
            ("base", "size = 1", "size = 2"),
        ),
        (
            "from PKG.base import Base", "Base.kinds[0].size",
            {"base": "class Base:\n    kinds = []\n    def __init_subclass__(cls):\n"
                     "        Base.kinds.append(cls)\nclass One(Base):\n    size = 1"},
            ("base", "size = 1", "size = 2"),
        ),
        # Through all names of a module, in a package.
        (
            "from PKG.inner import helper", "helper()",
            {"inner.__init__": "from .helpers import *",
             "inner.helpers": "def helper(): return 1"},
            ("inner.helpers", "return 1", "return 2"),
        ),
        # By a function that makes names.
        (
            "from PKG.lazy import anything", "anything()",
            {"lazy": "def __getattr__(name): return helper\ndef helper(): return 1"},
            ("lazy", "return 1", "return 2"),
        ),
        # What a package does when a module in it is imported.
        (
            "from PKG.inner.helpers import helper", "helper()",
            {"inner.__init__": "from PKG.registry import KINDS\nKINDS.update(one=1)",
             "inner.helpers": "def helper(): return 1", "registry": "KINDS = {}"},
            ("inner.__init__", "one=1", "one=2"),
        ),
        # A value that the making of another one changes.
        (
            "from PKG.tables import TABLE", "TABLE[0]",
            {"tables": "TABLE = [1, 2]\nfirst = TABLE.pop()"},
            ("tables", "pop()", "pop(0)"),
        ),
        # That was no Python before.
        (
            "", "from PKG.helpers import helper; helper()",
            {"helpers": "def helper(: return 1"},
            ("helpers", "return 1", "return 2"),
        ),
        # No Python any more.
        (
            "from PKG.helpers import helper", "helper()",
            {"helpers": "def helper(): return 1"},
            ("helpers", "def helper(): return 1", "def helper(: return 1"),
        ),
    ],
)  # fmt: skip
def test_an_edit_of_what_is_reached_counts(package, imports, body, modules, edit):
    imports, body = (text.replace("PKG", package.name) for text in (imports, body))
    cls = package.builder_class(imports, body, modules)
    before = package.hashes(cls)
    module, old, new = edit
    changed = modules[module].replace(old, new)
    assert changed != modules[module]
    package.write(module, changed)
    after = package.hashes(cls)
    changed_module = module.removesuffix(".__init__")
    assert {name for name in before if before[name] != after.get(name)} == {changed_module}


@pytest.mark.parametrize(
    ("modules", "edit"),
    [
        # A change of a value that is not used.
        (
            {"helpers": "TABLE = {}\nTABLE['a'] = 1\ndef helper(): return 1"},
            ("helpers", "= 1", "= 2"),
        ),
        # What is done where the module is run by itself.
        (
            {"helpers": "def helper(): return 1\nif __name__ == '__main__':\n    print(1)"},
            ("helpers", "print(1)", "print(2)"),
        ),
        # What annotations name.
        (
            {"helpers": "from PKG.kinds import Kind\ndef helper(x: Kind = 1) -> Kind: return x",
             "kinds": "class Kind:\n    size = 1"},
            ("kinds", "size = 1", "size = 2"),
        ),
    ],
)  # fmt: skip
def test_an_edit_of_what_is_not_reached_does_not_count(package, modules, edit):
    cls = package.builder_class(f"from {package.name}.helpers import helper", "helper()", modules)
    before = package.hashes(cls)
    module, old, new = edit
    assert old in modules[module]
    package.write(module, modules[module].replace(old, new))
    assert package.hashes(cls) == before


def test_a_class_that_its_module_does_not_name_counts_with_all_of_it(package):
    """As one that a function of another module makes."""
    cls = package.builder_class("", "pass")
    assert not package.parts(cls)["builder"].is_whole
    cls.__qualname__ = "Made"
    assert package.parts(cls)["builder"].is_whole


def test_definitions_may_be_moved_but_not_what_is_done(package):
    one = "def helper(): return A + B + f()\n\ndef f(): pass\n\nA = 1\nB = A\n"
    cls = package.builder_class(
        f"from {package.name}.helpers import helper", modules={"helpers": one}
    )
    before = package.hashes(cls)
    moved = "\n\ndef f(): pass\n\ndef helper(): return A + B + f()\n"
    package.write("helpers", "A = 1\nB = A" + moved)
    assert package.hashes(cls) == before
    for done in ("B = 1\nA = B", "B = A\nA = 1"):
        package.write("helpers", done + moved)
        assert package.hashes(cls) != before


def test_the_builders_of_a_module_do_not_count_for_each_other(package):
    cls = package.builder_class("", "pass")
    path = package.folder / "builder.py"
    before = package.hashes(cls)
    path.write_text(path.read_text() + "\nclass Another(my_datasets.Builder):\n    n = 1\n")
    assert package.hashes(cls) == before


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=16),
    st.integers(0, 7),
    st.booleans(),
)
def test_an_edit_counts_if_and_only_if_it_is_reached(tmp_path_factory, calls, edited, attribute):
    """Functions of four modules that call each other, as a graph says."""

    def source(module, number):
        used = sorted({to % 4 for at, to in calls if at % 4 == module})
        lines = [f"import PKG.m{one}" for one in used if attribute]
        for function in range(8):
            if function % 4 != module:
                continue
            called = [to for at, to in calls if at == function]
            body = ["    value = " + ("2" if function == number else "1")]
            for to in called:
                if not attribute:
                    body.append(f"    from PKG.m{to % 4} import f{to}")
                prefix = f"PKG.m{to % 4}." if attribute else ""
                body.append(f"    value += len(str({prefix}f{to}))")
            lines += [f"def f{function}():", *body, "    return value"]
        return "\n".join(lines)

    with pytest.MonkeyPatch.context() as patch:
        package = Package(tmp_path_factory.mktemp("package"), patch)
        modules = {f"m{i}": source(i, None) for i in range(4)}
        cls = package.builder_class(f"from {package.name}.m0 import f0", "f0()", modules)
        before = package.hashes(cls)
        for i in range(4):
            package.write(f"m{i}", source(i, edited))
        reached, waiting = set(), [0]
        while waiting:
            at = waiting.pop()
            if at not in reached:
                reached.add(at)
                waiting += [to for one, to in calls if one == at]
        assert (package.hashes(cls) != before) is (edited in reached)


def test_recorded_checksums_of_embedded_files_count(package, tmp_path):
    cls = package.builder_class("", "pass")
    before = fingerprint(cls(data_dir=tmp_path))
    line = f"somewhere\t5\t{'0' * 64}\tnames.txt\n"
    (package.folder / "checksums.tsv").write_text(line)
    (change,) = changes_since(before, cls(data_dir=tmp_path))
    assert change == "the checksums changed"


def of_the_first_rule(builder):
    """The fingerprint that releases before this rule wrote."""
    return fingerprint(builder, "1")


def test_data_with_a_fingerprint_of_the_first_rule_are_compared_by_that(package, tmp_path):
    name = package.name
    cls = package.builder_class(f"from {name}.helpers import helper", modules={"helpers": HELPERS})
    builder = cls(data_dir=tmp_path / "data")
    builder.download_and_prepare()
    version_dir = tmp_path / "data" / builder.name / "1.0.0"
    path = version_dir / "my_datasets_manifest.json"
    whole = json.loads(path.read_text())
    assert whole["fingerprint"]["rule"] == "2"
    made = Manifest.read(version_dir)
    old = Manifest(**{**vars(made), "fingerprint": of_the_first_rule(builder)})
    assert "rule" not in old.fingerprint
    old.write(version_dir)

    def reasons():
        builder = cls(data_dir=tmp_path / "data")
        return code_fingerprint._reasons(builder, Manifest.read(version_dir))

    assert reasons() == []
    # By that rule also what is not used counts.
    package.write("helpers", HELPERS.replace("OTHER = 3", "OTHER = 4"))
    (reason,) = reasons()
    assert reason == f"the source of {name}.helpers changed"
    package.write("helpers", HELPERS)
    of_another = Manifest(**{**vars(made), "fingerprint": {**made.fingerprint, "rule": "9"}})
    of_another.write(version_dir)
    package.write("helpers", HELPERS.replace("return FACTOR", "return 9"))
    assert reasons() == []


def test_the_first_rule_gives_the_hashes_that_it_always_gave(package, tmp_path):
    """Taken from the release before: SHA-256 of a tree as a text, without documentation."""
    package.write("helpers", HELPERS)
    cls = package.builder_class(f"from {package.name}.helpers import helper")
    found = of_the_first_rule(cls(data_dir=tmp_path))
    assert found[f"source of {package.name}.helpers"] == FIRST_RULE_OF_HELPERS


FIRST_RULE_OF_HELPERS = "ff06efaac26a013f0cdac9cc87f149f24036a03f622efaa8bf2896d23624ce32"


def test_files_that_did_not_change_are_not_parsed_again(package, monkeypatch):
    monkeypatch.setattr(source_code, "_SETTLED_NS", 0)
    cls = package.builder_class(
        f"from {package.name}.helpers import helper", modules={"helpers": HELPERS}
    )
    time.sleep(0.01)  # until the clock of the file system is past the files' times
    before = package.hashes(cls)
    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", None)
        assert package.hashes(cls) == before
    package.write("helpers", HELPERS.replace("return FACTOR", "return 2 * FACTOR"))
    assert package.hashes(cls) != before


def test_files_that_have_just_changed_are_read_again(package, monkeypatch):
    """They may change once more at what is the same time for a file system with a coarse clock."""
    now = time.time_ns()
    monkeypatch.setattr(source_code, "_states", lambda files: dict.fromkeys(files, (now, now, 1)))
    cls = package.builder_class(
        f"from {package.name}.helpers import helper", modules={"helpers": HELPERS}
    )
    before = package.hashes(cls)
    package.write("helpers", HELPERS.replace("return FACTOR", "return 2 * FACTOR"))
    assert package.hashes(cls) != before


def test_a_class_that_was_typed_in_counts_as_far_as_it_is_known():
    class Typed(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        pass

    Typed.__module__ = "no_such_module"
    assert source_parts(Typed) == [] or source_parts(Typed)[0].module == Typed.__qualname__


def test_info_tells_what_counts(package, tmp_path):
    from my_datasets.cli.main import cli

    cls = package.builder_class(
        f"from {package.name}.helpers import helper", modules={"helpers": HELPERS}
    )
    arguments = ["info", cls.name, "--imports", f"{package.name}.builder", "--fingerprint"]
    arguments += ["--data-dir", str(tmp_path)]
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    (helpers,) = [one for one in found["source"] if one["module"].endswith(".helpers")]
    assert helpers["names"] == ["FACTOR", "helper"]
    assert helpers["left_out"] == ["OTHER", "unrelated"]
    assert helpers["sha256"] == package.parts(cls)["helpers"].sha256
    assert found["fingerprint"] == fingerprint(cls(data_dir=tmp_path))
    shown = CliRunner().invoke(cli, arguments).stdout
    assert "FACTOR, helper" in shown
    assert "OTHER, unrelated" in shown
