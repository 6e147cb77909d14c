"""The fingerprint of a builder: a hash of each thing that determines its data.

Source code counts as what it means: comments, formatting and docstrings do not. Of what a builder
imports, only modules of its own package count: a new release of NumPy is not a new dataset.
"""

import ast
import hashlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import tensorflow_datasets as tfds

# This package's own layers make the same data from the same builder; its tests hold that.
_FRAMEWORK = "my_datasets"
_FRAMEWORKS_DATASETS = "my_datasets.datasets"


def fingerprint(builder: tfds.core.DatasetBuilder) -> dict[str, str]:
    """Returns a hash, or a short text, for each thing that determines a builder's data.

    Args:
      builder: The builder.

    Returns:
      `version`, `config`, `features`, `checksums`, and `source <module>` for the builder's module
      and every module of its own package that it imports, directly or not.
    """
    found = {
        "version": str(builder.version),
        "config": repr(builder.builder_config) if builder.builder_config else "",
        "features": _hash(json.dumps(builder.info.features.to_json(), sort_keys=True)),
        "checksums": _hash(
            json.dumps(
                sorted(
                    (url, str(info.size), info.checksum)
                    for url, info in (builder.url_infos or {}).items()
                )
            )
        ),
    }
    for name, source in sorted(_sources(type(builder))):
        found[f"source of {name}"] = _hash(_meaning(source))
    return found


def changes(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Returns what differs between two fingerprints, in words."""
    said = []
    for name in sorted({*old, *new}):
        if name not in new:
            said.append(f"the {name} is no longer there")
        elif name not in old:
            said.append(f"the {name} is new")
        elif old[name] != new[name]:
            said.append(f"the {name} changed")
    return said


def _sources(cls: type) -> Iterator[tuple[str, str]]:
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        try:
            yield cls.__qualname__, inspect.getsource(cls)
        except (OSError, TypeError):
            return  # typed into an interpreter that keeps no source
        return
    waiting, seen = [module], set()
    while waiting:
        module = waiting.pop()
        path = getattr(module, "__file__", None)
        if module.__name__ in seen or path is None or not path.endswith(".py"):
            continue
        seen.add(module.__name__)
        source = Path(path).read_text("utf-8")
        yield module.__name__, source
        waiting += _imports(module, source)


def _imports(module: ModuleType, source: str) -> Iterator[ModuleType]:
    """Yields the modules of its own package that a module imports."""
    package = module.__name__.partition(".")[0]
    is_package = hasattr(module, "__path__")
    parent = module.__name__ if is_package else module.__name__.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            try:
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), parent)
            except ImportError:
                continue
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            own = name == package or name.startswith(package + ".")
            if own and name in sys.modules and not _is_framework(name):
                yield sys.modules[name]


def _is_framework(name: str) -> bool:
    return name.partition(".")[0] == _FRAMEWORK and not name.startswith(_FRAMEWORKS_DATASETS)


def _meaning(source: str) -> str:
    """Returns what the code does, whatever it looks like."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        has_doc = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        if has_doc and body and _is_text(body[0]):
            node.body = body[1:]  # type: ignore[attr-defined]
    return ast.dump(tree, include_attributes=False)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
