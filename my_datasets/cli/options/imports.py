"""`--imports`: modules of the user's that bring builders, and feature classes."""

import importlib
from collections.abc import Callable
from typing import Any

import rich_click as click

from my_datasets.errors import BuilderImportError, MyDatasetsError, explain
from my_datasets.resolving.registry import builder_import_error


def _import(_context: Any, _option: Any, modules: str | None) -> None:
    import_modules(modules)


# For commands that read prepared data: what they import may register feature classes.
feature_imports_option: Callable[..., Any] = click.option(
    "--imports", metavar="MODULES", expose_value=False, callback=_import,
    help="Modules to import first, comma-separated: those that register feature classes of yours.",
)  # fmt: skip


def import_modules(modules: str | None) -> None:
    """Imports comma-separated modules, so that their builders are known.

    Raises:
      BuilderImportError: One of them is not there, or raised while it was imported.
    """
    for module in filter(None, (modules or "").split(",")):
        try:
            importlib.import_module(module)
        except MyDatasetsError:
            raise
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and _is_part(error.name, module):
                raise _not_there(module) from None
            raise builder_import_error(module, module, error) from error


def _is_part(missing: str | None, module: str) -> bool:
    return missing is not None and f"{module}.".startswith(f"{missing}.")


def _not_there(module: str) -> BuilderImportError:
    return BuilderImportError(
        explain(
            f"There is no module {module!r} to import.",
            fix="correct --imports, or put the directory that holds it on PYTHONPATH",
        )
    )
