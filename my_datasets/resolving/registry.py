"""Finds the builders in a package of datasets without importing any of them.

A package of datasets has one folder per dataset, `<name>/<name>_dataset_builder.py`, the layout of
`tfds new`. Names, versions and summaries are read from the files, so listing is fast and a broken
builder does not affect the others.
"""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from my_datasets.core.version import VersionNumber
from my_datasets.dependencies import install_command
from my_datasets.errors import BuilderImportError, MyDatasetsError
from my_datasets.resolving import available_versions
from my_datasets.resolving.available_versions import DeclaredVersions

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
    def offer(self) -> DeclaredVersions:
        """The versions that the source declares, as far as they are literals."""
        return available_versions.of_source(self.source_file.read_bytes())

    @property
    def version(self) -> VersionNumber | None:
        """The `VERSION` that the source declares as a literal; None if it is computed."""
        return self.offer.current


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


def offer_of(name: str) -> DeclaredVersions | None:
    """Returns the versions that a dataset's code offers; None if no code for it is known.

    Searches imported builders, then the datasets of registered packages and of this one. Imports a
    builder only if its source does not list the blocked versions as literals.

    Raises:
      BuilderImportError: The module had to be imported and raised an exception.
    """
    cls = _imported(name)
    if cls is not None:
        return available_versions.of_class(cls)
    for package in _packages:
        if name in package.datasets:
            found = package.datasets[name].offer
            return (
                found
                if found.is_sure
                else available_versions.of_class(package.get_builder_cls(name))
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
    _offer(packaged)


def register(package: str) -> None:
    """Registers the datasets of a package with TFDS without importing them until they are needed.

    Call it in the package's `__init__.py`: `my_datasets.register("ours.datasets")`.

    Args:
      package: The package's dotted name. Each folder `NAME` in it with a `NAME_dataset_builder.py`
        is a dataset.
    """
    datasets = DatasetsPackage(package)
    _packages.insert(0, datasets)
    _offer(datasets)


def _offer(datasets: DatasetsPackage) -> None:
    # TFDS's own providers import every public builder before they report an unknown name, so ours
    # go first.
    @wrapt.when_imported("tensorflow_datasets.core.registered")
    def _add_provider(registered: ModuleType) -> None:
        registered.add_dataset_builder_provider(datasets, index=0)
