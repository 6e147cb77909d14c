"""The fingerprint of a builder, a hash of all that determines its data, and the check against it.

Source code is hashed by its syntax tree: comments, formatting and docstrings do not count. Only
code in the builder's own package counts: a new release of NumPy does not make a new dataset.
Prepared data whose manifest has another fingerprint is stale.
"""

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums

from my_datasets.builders import source_code
from my_datasets.builders.source_code import ModulePart, SourceCode, sha256_of
from my_datasets.building.options import BuildOptions
from my_datasets.core.logs import get_logger
from my_datasets.core.reference import reference_to
from my_datasets.errors import StaleDataError
from my_datasets.metadata.manifest import Manifest
from my_datasets.resolving.version_select import DeclaredVersions
from my_datasets.storage import addresses

# The rule by which source code is hashed, stored in the fingerprint under this name. Rule 1, which
# fingerprints do not record, hashes in full every module that a builder's modules import.
RULE = "2"
_RULE_NAME = "rule"
_FIRST_RULE = "1"
# Config attributes that are documentation, or that have their own entry in the fingerprint.
_FOR_READERS = ("description", "release_notes", "tags", "version", "supported_versions")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_LOGGER = get_logger(__name__)
_warned: set[str] = set()


def fingerprint(builder: tfds.core.DatasetBuilder, rule: str = RULE) -> dict[str, str]:
    """Returns a hash, or a short text, for each thing that determines a builder's data.

    Returns:
      `version`, `config`, `features`, `checksums`, `rule`, and `source of <module>` for each module
      of the builder's package that it uses.
    """
    found = {} if rule == _FIRST_RULE else {_RULE_NAME: rule}
    found |= {
        "version": str(builder.version),
        "config": _config(builder.builder_config) if builder.builder_config else "",
        "features": sha256_of(json.dumps(builder.info.features.to_json(), sort_keys=True)),
        "checksums": sha256_of(json.dumps(listed(builder.url_infos or {}))),
    }
    for name, digest in sorted(_sources(type(builder), rule).items()):
        found[f"source of {name}"] = digest
    return found


def listed(infos: Mapping[str, checksums.UrlInfo]) -> list[tuple[str, str, str]]:
    """Returns addresses with the sizes and SHA-256s of their files, sorted."""
    return sorted((url, str(info.size), info.checksum) for url, info in infos.items())


def changes_since(old: Mapping[str, str], builder: tfds.core.DatasetBuilder) -> list[str]:
    """Returns the differences between a fingerprint and the current builder, as readable messages.

    Source code is not compared if this release does not know the rule of the fingerprint.
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
    """Returns the differences between two fingerprints, as readable messages."""
    messages = []
    for name in sorted({*old, *new}):
        if name not in new:
            messages.append(f"the {name} is no longer there")
        elif name not in old:
            messages.append(f"the {name} is new")
        elif old[name] != new[name]:
            messages.append(f"the {name} changed")
    return messages


def _config(config: tfds.core.BuilderConfig) -> str:
    """Returns the config's name and a hash of the attributes that affect the data."""
    values = {name: value for name, value in vars(config).items() if name not in _FOR_READERS}
    return f"{config.name}: {sha256_of(_stable(values))}"


def _stable(value: object) -> str:
    """Returns a text for a value that is the same in every process."""
    if isinstance(value, Mapping):
        items = sorted(f"{_stable(key)}: {_stable(item)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
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
    # The default repr contains the object's address, which differs between processes.
    fields = getattr(value, "__dict__", {})
    return f"{type(value).__module__}.{type(value).__qualname__} {_stable(fields)}"


def _sources(cls: type, rule: str) -> dict[str, str]:
    """Returns the hash of each module's relevant code, by module name."""
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


def source_parts(cls: type) -> list[ModulePart]:
    """Returns the source code that a builder's data depends on, one entry per module."""
    start = _start(cls)
    if not start:
        return _typed_in(cls)
    package = cls.__module__.partition(".")[0]
    classes = [
        (one.__module__, one.__qualname__.partition(".")[0])
        for one in cls.mro()
        if one.__module__ in start
    ]

    def compute() -> tuple[list[ModulePart], list[Path]]:
        code = SourceCode(package, start)
        for module, name in classes:
            code.add_class(module, name)
        return code.parts(), code.files()

    return source_code.cached((RULE, *classes, *start.items()), compute)


def _start(cls: type) -> dict[str, Path]:
    """Returns the files of the modules in the class's own package that define it and its bases."""
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


def _typed_in(cls: type) -> list[ModulePart]:
    """Returns the code of a class typed into an interpreter; empty if its source is unavailable."""
    try:
        text = source_code.meaning(inspect.getsource(cls))
    except (OSError, TypeError):
        return []
    name = cls.__qualname__
    return [ModulePart(name, "", (name,), (), is_whole=False, sha256=sha256_of(text))]


def limiting_options(
    config: tfds.download.DownloadConfig, options: BuildOptions
) -> dict[str, object]:
    """Returns the options that limit a version to less than the whole dataset, for its manifest."""
    found: dict[str, object] = dict(options.affecting_data)
    if config.max_examples_per_split is not None:
        found["max_examples_per_split"] = config.max_examples_per_split
    if config.ignore_duplicates:
        found["ignore_duplicates"] = True
    return found


def refuse_stale(
    builder: tfds.core.DatasetBuilder,
    config: tfds.download.DownloadConfig,
    options: BuildOptions,
) -> None:
    """Refuses prepared data that differs from what would be built now.

    Raises:
      StaleDataError: The data was built from other code or input, or with limits that were not
        requested now.
    """
    manifest = _manifest(builder)
    reasons = _reasons(builder, manifest)
    if manifest is not None and manifest.options:
        asked = limiting_options(config, options)
        if any(asked.get(name) != value for name, value in manifest.options.items()):
            limits = ", ".join(f"{name}={value}" for name, value in manifest.options.items())
            reasons.append(f"it was built with {limits}")
    if reasons:
        raise StaleDataError(
            f"The prepared data of {builder.info.full_name} differs from what would be built now.",
            f"Changes since it was prepared: {'; '.join(reasons)}",
            f"Location: {builder.data_dir}",
            fix=f"raise VERSION if the data changes, or rebuild it in place: "
            f"my-datasets build {reference_to(builder)} --overwrite",
        )


def warn_stale_once(builder: tfds.core.DatasetBuilder) -> None:
    """Warns, once per process and version, if the loaded data was prepared by different code."""
    directory = str(builder.data_dir)
    if directory in _warned:
        return
    reasons = _reasons(builder, _manifest(builder))
    if reasons:
        _warned.add(directory)
        _LOGGER.warning(
            "%s was prepared by different code: %s. "
            "Raise VERSION, or run: my-datasets build %s --overwrite",
            directory, "; ".join(reasons), reference_to(builder),
        )  # fmt: skip


def _reasons(builder: tfds.core.DatasetBuilder, manifest: Manifest | None) -> list[str]:
    if manifest is None or not manifest.fingerprint:
        return []  # prepared by plain TFDS, which writes no fingerprint
    if not DeclaredVersions.of_builder(builder).builds(builder.version):
        return []  # the current code cannot build it, so different code is expected
    return changes_since(manifest.fingerprint, builder)


def _manifest(builder: tfds.core.DatasetBuilder) -> Manifest | None:
    if addresses.is_remote(builder.data_dir):
        return None  # not worth a request on every load
    return Manifest.read(Path(builder.data_dir))
