"""The fingerprint of a builder: a hash of each thing that determines its data.

Source code counts as what it means: comments, formatting and docstrings do not. Of what a builder
uses, only what is in its own package counts: a new release of NumPy is not a new dataset.
"""

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from my_datasets.builders.fingerprint import source_code
from my_datasets.builders.fingerprint.source_code import Part, SourceCode

# How source code counts; a fingerprint says it under this name. By the first rule, of which
# fingerprints say nothing, each module counted whole that a builder's modules import.
RULE = "2"
_RULE_NAME = "rule"
_FIRST_RULE = "1"
# The attributes of a config that are documentation, or stand in the fingerprint by themselves.
_FOR_READERS = ("description", "release_notes", "tags", "version", "supported_versions")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def fingerprint(builder: tfds.core.DatasetBuilder, rule: str = RULE) -> dict[str, str]:
    """Returns a hash, or a short text, for each thing that determines a builder's data.

    Args:
      builder: The builder.
      rule: How source code counts.

    Returns:
      `version`, `config`, `features`, `checksums`, `rule`, and `source of <module>` for each module
      of the builder's package of which it uses something.
    """
    found = {} if rule == _FIRST_RULE else {_RULE_NAME: rule}
    found |= {
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
    for name, digest in sorted(_sources(type(builder), rule).items()):
        found[f"source of {name}"] = digest
    return found


def changes_since(old: Mapping[str, str], builder: tfds.core.DatasetBuilder) -> list[str]:
    """Returns what differs between a fingerprint and a builder as it is now, in words.

    Args:
      old: The fingerprint, by any rule. Of a rule that this release does not know, source code is
        not compared.
      builder: The builder.
    """
    rule = old.get(_RULE_NAME, _FIRST_RULE)
    if rule in (RULE, _FIRST_RULE):
        return changes(dict(old), fingerprint(builder, rule))
    return changes(_without_source(old), _without_source(fingerprint(builder)))


def _without_source(found: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in found.items()
        if name != _RULE_NAME and not name.startswith("source of ")
    }


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


def _sources(cls: type, rule: str) -> dict[str, str]:
    """Returns the hash of the code of each module that counts, by its name."""
    if rule == RULE:
        return {part.module: part.sha256 for part in source_parts(cls)}
    start = _start(cls)
    if not start:
        return {part.module: part.sha256 for part in _typed_in(cls)}
    first = {cls.__module__: start[cls.__module__]}
    return source_code.cached(
        (rule, cls.__module__, first[cls.__module__]),
        lambda: source_code.whole_modules(first, cls.__module__.partition(".")[0]),
    )


def source_parts(cls: type) -> list[Part]:
    """Returns what source code a builder's data depend on, module by module.

    Args:
      cls: The builder's class.
    """
    start = _start(cls)
    if not start:
        return _typed_in(cls)
    package = cls.__module__.partition(".")[0]
    classes = [
        (one.__module__, one.__qualname__.partition(".")[0])
        for one in cls.mro()
        if one.__module__ in start
    ]

    def compute() -> tuple[list[Part], list[Path]]:
        code = SourceCode(package, start)
        for module, name in classes:
            code.add_class(module, name)
        return code.parts(), code.files()

    return source_code.cached((RULE, *classes, *start.items()), compute)


def _start(cls: type) -> dict[str, Path]:
    """Returns the files of the modules of a builder's classes that are of its package."""
    package = cls.__module__.partition(".")[0]
    found: dict[str, Path] = {}
    for one in cls.mro():
        name = one.__module__
        is_own = name.partition(".")[0] == package and not source_code.is_framework(name)
        if one is not cls and not is_own:
            continue
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None and one is cls:
            return {}
        if file is not None and file.endswith(".py"):
            found[name] = Path(file)
    return found


def _typed_in(cls: type) -> list[Part]:
    """Returns the code of a class that was typed into an interpreter; nothing if it keeps none."""
    try:
        text = source_code.meaning(inspect.getsource(cls))
    except (OSError, TypeError):
        return []
    name = cls.__qualname__
    return [Part(name, "", (name,), (), is_whole=False, sha256=_hash(text))]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
