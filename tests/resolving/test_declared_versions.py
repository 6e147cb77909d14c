"""Which versions a builder offers: its source alone says what its class says."""

import importlib
import sys
import textwrap

import pytest

from my_datasets.core.version import VersionNumber, VersionPattern
from my_datasets.resolving import registry
from my_datasets.resolving.registry import DatasetsPackage
from my_datasets.resolving.version_select import Blocked, DeclaredVersions

HEAD = """
import tensorflow_datasets as tfds
import my_datasets
"""
BODIES = {
    "one": "VERSION = tfds.core.Version('1.0.0')",
    "annotated": "VERSION: object = tfds.core.Version('1.0.0')",
    "several": """
        VERSION = tfds.core.Version("2.0.0")
        SUPPORTED_VERSIONS = [tfds.core.Version("1.0.0"), tfds.core.Version("1.1.0"), "1.2.0"]
        BUILDABLE_VERSIONS = [tfds.core.Version("1.1.0")]
    """,
    "by name": """
        VERSION = tfds.core.Version("1.1.0")
        SUPPORTED_VERSIONS = [tfds.core.Version("1.0.0")]
        BUILDABLE_VERSIONS = SUPPORTED_VERSIONS
    """,
    "newer": """
        VERSION = tfds.core.Version("1.1.0")
        SUPPORTED_VERSIONS = (tfds.core.Version("2.0.0"), tfds.core.Version("1.0.0"))
    """,
    "blocked": """
        VERSION = tfds.core.Version("1.1.0")
        BLOCKED_VERSIONS = tfds.core.utils.BlockedVersions(
            versions={"1.0.0": WHY, "0.9.0": None},
            configs={"1.1.0": {"small": "Too small."}},
        )
    """,
}


def loaded(source, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "offering.py").write_text(source)
    importlib.invalidate_caches()
    sys.modules.pop("offering", None)
    return importlib.import_module("offering").Builder


@pytest.mark.parametrize("name", BODIES)
def test_the_source_says_what_the_class_says(name, tmp_path, monkeypatch):
    body = textwrap.indent(textwrap.dedent(BODIES[name]), "    ")
    source = (
        f"{HEAD}WHY = 'Labels are wrong.'\n"
        f"class Builder(my_datasets.Builder, skip_registration=True):\n"
        f"    name = 'offering'\n{body}\n"
    )
    assert registry.read_versions(source.encode()) == DeclaredVersions.of_class(
        loaded(source, tmp_path, monkeypatch)
    )


def test_what_a_base_class_of_the_module_says_counts(tmp_path, monkeypatch):
    source = HEAD + textwrap.dedent("""
        class Base(my_datasets.Builder, skip_registration=True):
            name = "offering"
            VERSION = tfds.core.Version("1.0.0")
            BLOCKED_VERSIONS = tfds.core.utils.BlockedVersions({"0.1.0": "Old."})

        class Builder(Base, skip_registration=True):
            name = "offering"
            VERSION = tfds.core.Version("1.1.0")
    """)
    found = registry.read_versions(source.encode())
    assert found == DeclaredVersions.of_class(loaded(source, tmp_path, monkeypatch))
    assert found.blocked.reason("0.1.0", None) == "Old."


@pytest.mark.parametrize(
    "line",
    [
        "    BLOCKED_VERSIONS = make()",
        "    BLOCKED_VERSIONS = tfds.core.utils.BlockedVersions(versions=make())",
        "    BLOCKED_VERSIONS = tfds.core.utils.BlockedVersions(versions={'1.0.0': f'{1}'})",
        "    if True:\n        BLOCKED_VERSIONS = None",
        "Builder.BLOCKED_VERSIONS = make()",
    ],
)
def test_what_is_computed_is_not_sure(line):
    found = registry.read_versions(
        f"class Builder:\n    VERSION = tfds.core.Version('1.0.0')\n{line}\n".encode()
    )
    assert not found.is_sure
    assert found.current == VersionNumber(1, 0, 0)


def test_reading_blocked_versions_elsewhere_computes_nothing():
    source = (
        "class Builder:\n    VERSION = '1.0.0'\n    def f(self): return self.BLOCKED_VERSIONS\n"
    )
    assert registry.read_versions(source.encode()).is_sure


@pytest.mark.parametrize(
    "source", [b"class Builder:\n  VERSION =", b"VERSION = '1.0.0'\0", b"\xff"]
)
def test_source_that_is_not_python_declares_nothing(source):
    assert registry.read_versions(source) == DeclaredVersions()


def test_code_whose_blocked_versions_are_computed_is_imported(tmp_path, monkeypatch):
    folder = tmp_path / "offered_datasets" / "computed_offer"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "computed_offer_dataset_builder.py").write_text(
        HEAD + "class Builder(my_datasets.Builder):\n"
        "    VERSION = tfds.core.Version('1.1.0')\n"
        "    BLOCKED_VERSIONS = tfds.core.utils.BlockedVersions(dict.fromkeys(['1.0.0'], 'No.'))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_packages", [DatasetsPackage("offered_datasets")])
    assert registry.declared_versions("computed_offer").blocked == Blocked({"1.0.0": "No."})
    assert registry.declared_versions("of_nobody") is None


def test_the_order_in_which_versions_are_meant():
    declared = DeclaredVersions.of(["1.1.0", "1.0.0", "1.3.0", "1.2.0", "0.9.0"], ["1.0.0"], None)
    assert [str(one) for one in declared.versions] == ["1.1.0", "1.3.0", "1.0.0", "1.2.0", "0.9.0"]
    assert declared.described(None) == (
        "1.1.0, 1.3.0, 1.0.0, 1.2.0 (only loaded), 0.9.0 (only loaded)"
    )
    assert declared.builds("1.3.0")  # as TFDS builds the newest on request
    assert not declared.builds("0.9.0")
    any_of_1 = VersionPattern.parse("1.*.*")
    assert declared.newest(any_of_1, None) == VersionNumber(1, 1, 0)
    assert declared.newest(VersionPattern.parse("0.*.*"), None) == VersionNumber(0, 9, 0)
    assert declared.newest(VersionPattern.parse("2.*.*"), None) is None
