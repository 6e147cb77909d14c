"""Optional dependencies: which extra brings a module, and an error that says so."""

import importlib
from types import ModuleType

from my_datasets.errors import MissingDependencyError, explain

# Top-level module -> what to install for it. The extras are those of setup.py (a test compares).
_INSTALLS = {
    "apache_beam": "my_datasets[beam]",
    "sklearn": "my_datasets",
}


def missing(module: str, *, needed_for: str) -> MissingDependencyError:
    """Returns the error for an absent module, naming the command that brings it.

    Args:
      module: Top-level import name, such as `apache_beam`.
      needed_for: What cannot be done without it, to complete "... is needed for".
    """
    install = _INSTALLS.get(module, module)
    return MissingDependencyError(
        explain(
            f"{module} is needed for {needed_for}, and is not installed.",
            mend=f"pip install '{install}'",
        )
    )


def require(module: str, *, needed_for: str) -> ModuleType:
    """Imports an optional module.

    Raises:
      MissingDependencyError: The module is not installed; the message names the `pip install`.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # An installed module whose own imports fail is a different problem: let it be seen.
        if error.name is None or error.name.partition(".")[0] != module:
            raise
        raise missing(module, needed_for=needed_for) from error
