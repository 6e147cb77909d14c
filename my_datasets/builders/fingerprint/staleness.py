"""Checks whether prepared data is what the current builder would produce."""

from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from my_datasets.builders.fingerprint import fingerprint
from my_datasets.building.options import BuildOptions
from my_datasets.core.logs import get_logger
from my_datasets.core.reference import reference_to
from my_datasets.errors import StaleDataError, explain
from my_datasets.metadata.manifest import Manifest
from my_datasets.resolving import available_versions
from my_datasets.storage import addresses

_LOGGER = get_logger(__name__)

_warned: set[str] = set()


def limits(config: tfds.download.DownloadConfig, options: BuildOptions) -> dict[str, Any]:
    """Returns the options that limit a version to less than the whole dataset, for its manifest."""
    found = dict(options.affecting_data)
    if config.max_examples_per_split is not None:
        found["max_examples_per_split"] = config.max_examples_per_split
    if config.ignore_duplicates:
        found["ignore_duplicates"] = True
    return found


def refuse(
    builder: tfds.core.DatasetBuilder,
    config: tfds.download.DownloadConfig,
    options: BuildOptions,
) -> None:
    """Refuses prepared data that differs from what would be built now.

    Raises:
      StaleDataError: The data was built from other code or input, or with limits that were not
        requested now.
    """
    reasons = _reasons(builder)
    manifest = _manifest(builder)
    if manifest is not None and manifest.options:
        asked = limits(config, options)
        if any(asked.get(name) != value for name, value in manifest.options.items()):
            made = ", ".join(f"{name}={value}" for name, value in manifest.options.items())
            reasons.append(f"it was made with {made}")
    if reasons:
        raise StaleDataError(
            explain(
                f"The prepared data of {builder.info.full_name} is not what would be built now.",
                f"Since it was prepared: {'; '.join(reasons)}",
                f"It is in {builder.data_dir}",
                fix=f"raise VERSION if the data changes, or build it anew in its place: "
                f"my-datasets build {reference_to(builder)} --overwrite",
            )
        )


def warn_once(builder: tfds.core.DatasetBuilder) -> None:
    """Warns, once per process and version, if the loaded data was prepared by different code."""
    directory = str(builder.data_dir)
    if directory in _warned:
        return
    reasons = _reasons(builder)
    if reasons:
        _warned.add(directory)
        _LOGGER.warning(
            "%s was prepared by another state of its builder: %s. "
            "Raise VERSION, or run: my-datasets build %s --overwrite",
            directory, "; ".join(reasons), reference_to(builder),
        )  # fmt: skip


def _reasons(builder: tfds.core.DatasetBuilder) -> list[str]:
    manifest = _manifest(builder)
    if manifest is None or not manifest.fingerprint:
        return []  # prepared by plain TFDS, which writes no fingerprint
    if not available_versions.of_builder(builder).builds(builder.version):
        return []  # the current code cannot build it, so different code is expected
    return fingerprint.changes_since(manifest.fingerprint, builder)


def _manifest(builder: tfds.core.DatasetBuilder) -> Manifest | None:
    if addresses.is_remote(builder.data_dir):
        return None  # not worth a request on every load
    return Manifest.read(Path(builder.data_dir))
