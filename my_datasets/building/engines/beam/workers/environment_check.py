"""What a worker must have in common with the building process, and whether it has."""

import platform
import sys
import zlib
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from my_datasets._version import __version__
from my_datasets.building.engines.beam.workspace.workspace import Place
from my_datasets.errors import BuildInterruptedError, MyDatasetsError, explain

# What makes the bytes of a record, or is pickled on one side and unpickled on the other.
_DISTRIBUTIONS = ("apache-beam", "numpy", "pyarrow", "tensorflow", "tensorflow-datasets")


def versions() -> dict[str, str]:
    """Returns the versions, here, of what must be the same everywhere."""
    found = {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "my_datasets": __version__,
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }
    for name in _DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


@dataclass(frozen=True)
class Surroundings:
    """What a worker must find.

    Attributes:
      place: Where the work is.
      modules: Modules that it must be able to import: those of the builder.
      versions: Of the building process.
    """

    place: Place
    modules: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=versions)

    def check(self) -> str:
        """Returns the name of this machine if all is there.

        Raises:
          BuildInterruptedError: Something is missing, or is another version.
        """
        here = versions()
        others = [
            f"{name} {here.get(name, 'none')} (the building process has {wanted})"
            for name, wanted in self.versions.items()
            if here.get(name) != wanted
        ]
        if others:
            raise self._error(
                f"A worker has {', '.join(others)}.",
                "give all workers the same environment as the building process, with "
                f"{sys.executable} being what they run",
            )
        self._check_place()
        for name in self.modules:
            try:
                import_module(name)
            except Exception as error:  # a module may raise anything, and OSError means no answer
                raise self._error(
                    f"A worker cannot import {name}: {type(error).__name__}: {error}",
                    "install the builder's package on all workers, or put its directory into "
                    "their PYTHONPATH",
                ) from error
        return platform.node()

    def _check_place(self) -> None:
        try:
            is_there = self.place.is_there()
        except (MyDatasetsError, OSError) as error:
            # For one, the machine has no credentials, may not look there, or lacks an extra.
            raise self._error(f"A worker cannot use {self.place}. {error}", "") from error
        if not is_there:
            raise self._error(
                f"A worker does not see {self.place}.",
                "use a --data-dir that all machines share: one absolute path, or a bucket",
            )

    def _error(self, what: str, fix: str) -> BuildInterruptedError:
        return BuildInterruptedError(explain(what, f"It runs on {platform.node()}.", fix=fix))
