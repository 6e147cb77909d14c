"""Finds the builders in a package of datasets without importing any of them.

A package of datasets has one folder per dataset, `<name>/<name>_dataset_builder.py`, the layout of
`tfds new`. Names, versions and summaries are read from the files, so listing is fast and a broken
builder does not affect the others.
"""

import ast
import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from my_datasets.core.version import VersionNumber
from my_datasets.dependencies import install_command
from my_datasets.errors import BuilderImportError, MyDatasetsError
from my_datasets.resolving.version_select import Blocked, DeclaredVersions

DATASETS_PACKAGE = "my_datasets.datasets"


@dataclass(frozen=True)
class PackagedDataset:
    """A dataset's builder, known only from its files.

    Attributes:
      name: The dataset's name.
      module: The dotted name of the builder's module.
      folder: The directory with the builder, README.md, CITATIONS.bib and TAGS.txt.
    """

    name: str
    module: str
    folder: Path

    @property
    def source_file(self) -> Path:
        """The builder's Python file."""
        return self.folder / f"{self.name}_dataset_builder.py"

    @property
    def summary(self) -> str:
        """The first line of prose in the dataset's README.md, or an empty string."""
        readme = self.folder / "README.md"
        lines = readme.read_text("utf-8").splitlines() if readme.is_file() else []
        prose = (line.strip() for line in lines if not line.startswith("#"))
        return next(filter(None, prose), "")

    @property
    def declared_versions(self) -> DeclaredVersions:
        """The versions that the source declares, as far as they are literals."""
        return read_versions(self.source_file.read_bytes())

    @property
    def version(self) -> VersionNumber | None:
        """The `VERSION` that the source declares as a literal; None if it is computed."""
        return self.declared_versions.current


class DatasetsPackage:
    """The datasets of one package, exposed to TFDS as a `DatasetBuilderProvider`."""

    def __init__(self, package: str) -> None:
        """Stores the package's name. Files are read and modules imported lazily.

        Args:
          package: Dotted name of a package whose folders are datasets.
        """
        self._package = package

    @functools.cached_property
    def datasets(self) -> Mapping[str, PackagedDataset]:
        """The datasets by name, in alphabetical order."""
        spec = importlib.util.find_spec(self._package)
        roots = list(spec.submodule_search_locations or ()) if spec else []
        folders = sorted(path for root in roots for path in Path(root).iterdir() if path.is_dir())
        found = (
            PackagedDataset(
                name=folder.name,
                module=f"{self._package}.{folder.name}.{folder.name}_dataset_builder",
                folder=folder,
            )
            for folder in folders
        )
        return {dataset.name: dataset for dataset in found if dataset.source_file.is_file()}

    def has_dataset(self, name: str) -> bool:
        """Returns whether the package has a dataset of that name (TFDS's protocol)."""
        return name in self.datasets

    def get_builder_cls(self, name: str) -> Any:
        """Imports a dataset's module and returns its `Builder` class (TFDS's protocol).

        Raises:
          BuilderImportError: The module raised an exception while it was imported.
          DuplicateBuilderError: Another builder of that name is already registered.
        """
        dataset = self.datasets[name]
        try:
            return importlib.import_module(dataset.module).Builder
        except MyDatasetsError:
            raise
        except Exception as error:
            raise builder_import_error(name, dataset.source_file, error) from error


def builder_import_error(name: str, source: object, error: Exception) -> BuilderImportError:
    """Returns the error for a builder module that raised `error` while it was imported."""
    first_line = (str(error).splitlines() or [""])[0]
    return BuilderImportError(
        f"The builder of {name!r} cannot be imported: {type(error).__name__}: {first_line}",
        f"Its module is {source}.",
        fix=f"if {error.name} is a package, {install_command(error.name)}"
        if isinstance(error, ModuleNotFoundError) and error.name
        else "correct that module; its own traceback shows the line",
    )


packaged = DatasetsPackage(DATASETS_PACKAGE)


# The packages that TFDS searches, in order.
_packages: list[DatasetsPackage] = [packaged]


def declared_versions(name: str) -> DeclaredVersions | None:
    """Returns the versions that a dataset's code declares; None if no code for it is known.

    Searches imported builders, then the datasets of registered packages and of this one. Imports a
    builder only if its source does not list the blocked versions as literals.

    Raises:
      BuilderImportError: The module had to be imported and raised an exception.
    """
    cls = _imported(name)
    if cls is not None:
        return DeclaredVersions.of_class(cls)
    for package in _packages:
        if name in package.datasets:
            found = package.datasets[name].declared_versions
            return (
                found if found.is_sure else DeclaredVersions.of_class(package.get_builder_cls(name))
            )
    return None


def _imported(name: str) -> Any:
    tfds = sys.modules.get("tensorflow_datasets")
    if tfds is None:  # then no builder is imported, and importing TFDS is slow
        return None
    # TFDS's public functions import all of its builders first.
    return tfds.core.registered._DATASET_REGISTRY.get(name)


def register_with_tfds() -> None:
    """Makes TFDS search this package first, as soon as TFDS is imported."""
    _add_to_tfds(packaged)


def register(package: str) -> None:
    """Registers the datasets of a package with TFDS without importing them until they are needed.

    Call it in the package's `__init__.py`: `my_datasets.register("ours.datasets")`.

    Args:
      package: The package's dotted name. Each folder `NAME` in it with a `NAME_dataset_builder.py`
        is a dataset.
    """
    datasets = DatasetsPackage(package)
    _packages.insert(0, datasets)
    _add_to_tfds(datasets)


def _add_to_tfds(datasets: DatasetsPackage) -> None:
    # TFDS's own providers import every public builder before they report an unknown name, so ours
    # go first.
    @wrapt.when_imported("tensorflow_datasets.core.registered")
    def _add_provider(registered: ModuleType) -> None:
        registered.add_dataset_builder_provider(datasets, index=0)


def read_versions(source: bytes) -> DeclaredVersions:
    """Returns what the source of a builder's module offers, without importing it.

    Understands literals, `tfds.core.Version(...)`, `BlockedVersions(...)` and names bound to these,
    in the class `Builder` and its base classes in the same module.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return DeclaredVersions()  # importing it fails as well
    classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
    found = _of_class("Builder", classes, dict(_assigned(tree.body, {})))
    blocked = found.get("BLOCKED_VERSIONS")
    is_said = any(map(_declares_blocked, ast.walk(tree)))
    return DeclaredVersions.of(
        (found.get("VERSION"), *_listed(found.get("SUPPORTED_VERSIONS"))),
        _listed(found.get("BUILDABLE_VERSIONS")),
        blocked if isinstance(blocked, Blocked) else None,
        is_sure=isinstance(blocked, Blocked) or not is_said,
    )


class _Unknown:
    """The value of an expression that cannot be evaluated statically."""


_UNKNOWN = _Unknown()


def _of_class(
    name: str, classes: Mapping[str, ast.ClassDef], of_module: Mapping[str, object]
) -> dict[str, object]:
    """Returns the values that a class declares, or inherits from classes in the same module."""
    if name not in classes:
        return dict(of_module)
    others = {other: cls for other, cls in classes.items() if other != name}
    inherited: dict[str, object] = {}
    for base in map(ast.unparse, reversed(classes[name].bases)):
        inherited |= _of_class(base, others, of_module) if base in others else {}
    known = {**of_module, **inherited}
    return {**known, **dict(_assigned(classes[name].body, known))}


def _declares_blocked(node: ast.AST) -> bool:
    name = getattr(node, "id", None) or getattr(node, "attr", None)
    return name == "BLOCKED_VERSIONS" and isinstance(getattr(node, "ctx", None), ast.Store)


def _assigned(
    body: Iterable[ast.stmt], names: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    known = dict(names)
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign):
                known[target.id] = _value(node.value, known)
                yield target.id, known[target.id]


def _value(node: ast.expr | None, names: Mapping[str, object]) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, _UNKNOWN)
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(one, names) for one in node.elts]
        return _UNKNOWN if _UNKNOWN in values else values
    if isinstance(node, ast.Dict):
        keys = [_value(one, names) for one in node.keys]
        values = [_value(one, names) for one in node.values]
        return _UNKNOWN if _UNKNOWN in (*keys, *values) else dict(zip(keys, values, strict=True))
    if isinstance(node, ast.Call):
        return _made(node, names)
    return _UNKNOWN


def _made(node: ast.Call, names: Mapping[str, object]) -> object:
    what = ast.unparse(node.func).rpartition(".")[2]
    given = [_value(one, names) for one in node.args]
    named = {str(one.arg): _value(one.value, names) for one in node.keywords}
    if what == "Version" and given and isinstance(given[0], str):
        return given[0]
    if what == "BlockedVersions" and _UNKNOWN not in (*given, *named.values()):
        fields: dict[str, Any] = {
            **dict(zip(("versions", "configs"), given, strict=False)),
            **named,
        }
        if set(fields) <= {"versions", "configs"} and all(
            isinstance(one, dict) for one in fields.values()
        ):
            return Blocked(**fields)
    return _UNKNOWN


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
