"""The fingerprint of a builder: a hash of each thing that determines its data.

Source code counts as what it means: comments, formatting and docstrings do not. Of what a builder
imports, only modules of its own package count: a new release of NumPy is not a new dataset.
"""

import ast
import hashlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

# This package's own layers make the same data from the same builder; its tests hold that.
_FRAMEWORK = "my_datasets"
_FRAMEWORKS_DATASETS = "my_datasets.datasets"
# The attributes of a config that are documentation, or stand in the fingerprint by themselves.
_FOR_READERS = ("description", "release_notes", "tags", "version", "supported_versions")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


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
        "config": _config(builder.builder_config) if builder.builder_config else "",
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
    for name, code in sorted(_sources(type(builder)).items()):
        found[f"source of {name}"] = _hash(code if isinstance(code, str) else _meaning(code))
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


def _config(config: tfds.core.BuilderConfig) -> str:
    """Returns what a config says of the data; what it says to readers does not count."""
    values = {name: value for name, value in vars(config).items() if name not in _FOR_READERS}
    return f"{config.name}: {_hash(_stable(values))}"


def _stable(value: Any) -> str:
    """Returns a text for a value that is the same in each process."""
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(sorted(f"{_stable(k)}: {_stable(v)}" for k, v in value.items())) + "}"
        )
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(_stable, value))) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_stable, value)) + "]"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tfds.features.FeatureConnector):
        return json.dumps(value.to_json(), sort_keys=True)
    if inspect.isroutine(value) or inspect.isclass(value):
        return f"{value.__module__}.{value.__qualname__}"
    text = ascii(value)
    if not _ADDRESS.search(text):
        return text
    # An object that does not say what it is: its address would be another one in each process.
    fields = getattr(value, "__dict__", {})
    return f"{type(value).__module__}.{type(value).__qualname__} {_stable(fields)}"


def _sources(cls: type) -> dict[str, "ast.Module | str"]:
    """Returns the code of each module that counts, by its name; as text where it is no Python."""
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        try:
            return {cls.__qualname__: _parsed(inspect.getsource(cls))}
        except (OSError, TypeError):
            return {}  # typed into an interpreter that keeps no source
    waiting = [(module.__name__, Path(file))]
    found: dict[str, ast.Module | str] = {}
    while waiting:
        name, path = waiting.pop()
        if name in found or path.suffix != ".py":
            continue
        found[name] = code = _parsed(path.read_text("utf-8"))
        if isinstance(code, ast.Module):
            waiting += _imports(name, path, code)
    return found


def _parsed(source: str) -> "ast.Module | str":
    try:
        return ast.parse(source)
    except SyntaxError:
        return source


def _imports(module: str, path: Path, code: ast.Module) -> Iterator[tuple[str, Path]]:
    """Yields the modules of its own package that a module imports, and their files.

    They are looked for as files: some are imported only while the data are generated, and must
    count before that, too.
    """
    package = module.partition(".")[0]
    parent = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(code):
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
            file = _file(name) if own and not _is_framework(name) else None
            if file is not None:
                yield name, file


def _file(module: str) -> Path | None:
    """Returns the file of a module whose outermost package was imported; None if it is none."""
    package, _, rest = module.partition(".")
    roots = [Path(root) for root in getattr(sys.modules.get(package), "__path__", ())]
    parts = rest.split(".") if rest else []
    for root in roots:
        inside = root.joinpath(*parts)
        for file in (inside / "__init__.py", inside.with_name(inside.name + ".py")):
            if file.is_file() and (parts or file.name == "__init__.py"):
                return file
    return None


def _is_framework(name: str) -> bool:
    return name.partition(".")[0] == _FRAMEWORK and not name.startswith(_FRAMEWORKS_DATASETS)


def _meaning(code: ast.Module) -> str:
    """Returns what code does, whatever it looks like; its documentation is taken out of it."""
    for node in ast.walk(code):
        body = getattr(node, "body", None)
        has_doc = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, has_doc) and body and _is_text(body[0]):
            node.body = body[1:]
    return _dumped(code)


def _dumped(node: Any) -> str:
    """Returns a syntax tree as a text.

    Not by `ast.dump`: what that says of the same code changes from one Python to the next, as
    fields are added. Those are left out here while they are empty.
    """
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in node._fields if name != "ctx")
        said = [f"{name}={_dumped(value)}" for name, value in fields if value not in (None, [])]
        return f"{type(node).__name__}({', '.join(said)})"
    if isinstance(node, list):
        return "[" + ", ".join(map(_dumped, node)) + "]"
    return ascii(node)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
