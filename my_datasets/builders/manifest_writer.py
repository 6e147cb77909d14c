"""Collects what a build records in a version's manifest, in one pass over the examples."""

import re
import shutil
import tempfile
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums

from my_datasets._version import __version__
from my_datasets.builders import build_job, code_fingerprint
from my_datasets.building.options import BuildOptions, SplitResult
from my_datasets.building.progress import Meter, log_progress
from my_datasets.building.units import SplitInput
from my_datasets.comparison import examine
from my_datasets.comparison.examine import Examination, Examined, PartResult, violations
from my_datasets.core import processes
from my_datasets.errors import ConstraintError
from my_datasets.metadata import features as schema
from my_datasets.metadata import layout, recorded_files
from my_datasets.metadata.content import Content, ShardContent
from my_datasets.metadata.dataset_info import Declared, essentials
from my_datasets.metadata.feature_classes import register_classes_of
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.statistics import constraints
from my_datasets.statistics.constraints import Constraint
from my_datasets.statistics.feature import FeatureStatistics

if TYPE_CHECKING:
    from my_datasets.builders.base import Builder

# Query parameters that hold credentials.
_SECRET = re.compile(r"token|signature|^sig$|credential|secret|password|^key$|api_?key|^se$", re.I)
# How many constraint violations an error lists.
_MOST_SHOWN = 5
# The memory that one process needs to examine shards, in bytes.
_MEMORY = 64 << 20
# Fetches the findings for a shard, given its name and an empty folder for their files.
Findings = Callable[[str, Path], PartResult]
# How many findings are fetched at a time.
_AT_ONCE = 16


def check_constraints(builder: "Builder") -> None:
    """Raises `BuilderError` if a builder's constraints cannot apply to its features."""
    if not builder.CONSTRAINTS:
        return
    with _saved_features(builder) as directory:
        leaves = schema.leaves_of(VersionMetadata(directory).tree)
    features = [FeatureStatistics(leaf) for leaf in leaves]
    constraints.check_declared(builder.CONSTRAINTS, features, builder.name)


def examination(builder: "Builder") -> Examination:
    """Returns what to look for in the examples of a builder that knows all its label names."""
    with _saved_features(builder) as directory:
        leaves = VersionMetadata(directory).known_leaves
    return Examination(leaves, builder.CONSTRAINTS, is_canonical=True)


@contextmanager
def _saved_features(builder: tfds.core.DatasetBuilder) -> Iterator[Path]:
    register_classes_of(builder.info.features)
    with tempfile.TemporaryDirectory() as directory:
        builder.info.features.save_config(directory)
        yield Path(directory)


def examined(
    version_dir: Path,
    results: Sequence[SplitResult],
    scratch: Path,
    examination: Examination,
    options: BuildOptions,
    findings: Findings | None = None,
) -> tuple[Content, dict[str, object]]:
    """Returns the content of a built version and the statistics of its splits.

    `version_dir` has the metadata. `scratch` is for temporary files, and is removed afterwards.
    `findings` fetches the findings of the worker that wrote a shard; None to examine shards here.

    Raises:
      ConstraintError: Values violate the builder's constraints.
    """
    meter = Meter(options.report or log_progress)
    total = sum(shard.bytes for result in results for shard in result.shards)
    meter.begin("examining", expected_bytes=total)
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed build
    scratch.mkdir(parents=True)

    def report(split: str, size: int) -> None:
        meter.add(split, 0, size)

    try:
        if findings is None:
            found = examine.examine(
                version_dir, Declared.read(version_dir), scratch, examination, report=report,
                workers=max(1, min(options.worker_count, options.memory // _MEMORY)),
            )  # fmt: skip
        else:
            found = {
                one.name: examine.joined(_fetched(one, scratch, findings, report), examination)
                for one in results
            }
        _refuse_violations(found, examination.constraints)
        splits = {one.name: found[one.name].content(one.shards) for one in results}
        statistics: dict[str, object] = {
            name: split.statistics.summary() for name, split in found.items() if split.statistics
        }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Content(VersionMetadata(version_dir).schema_digest, splits), statistics


def _fetched(
    split: SplitResult, scratch: Path, findings: Findings, report: Callable[[str, int], None]
) -> Iterator[tuple[Path, PartResult]]:
    def fetch(shard: ShardContent) -> tuple[Path, PartResult]:
        folder = scratch / shard.name
        folder.mkdir()
        return folder, findings(shard.name, folder)

    found = processes.ordered_results(fetch, split.shards, _AT_ONCE)
    for shard, fetched in zip(split.shards, found, strict=True):
        report(split.name, shard.bytes)
        yield fetched


def _refuse_violations(found: Mapping[str, Examined], declared: Mapping[str, Constraint]) -> None:
    shown = [f"{name}: {one}" for name, one in violations(found, declared)]
    if shown:
        more = len(shown) - _MOST_SHOWN
        raise ConstraintError(
            "Values violate the builder's CONSTRAINTS; the prepared data is unchanged.",
            *shown[:_MOST_SHOWN],
            f"... and {more} more" if more > 0 else "",
            fix="fix the data or the code that reads it, or relax CONSTRAINTS",
        )


def write_manifest(
    builder: "Builder",
    target: Path,
    inputs: Iterable[SplitInput],
    results: Sequence[SplitResult],
    config: tfds.download.DownloadConfig,
    options: BuildOptions,
    downloads: Mapping[str, checksums.UrlInfo],
    *,
    fingerprint: dict[str, str],
    content: Content,
    statistics: dict[str, object],
) -> None:
    """Writes the manifest of a built version, beside its other metadata in `target`."""
    notes = builder.info.release_notes or {}
    shards = {shard.name for one in results for shard in one.shards}
    by_workers = {name: file for one in results for name, file in one.sidecars.items()}
    # Only splits of a source have a rule by which its rows were assigned to them.
    rules = {item.name: dict(getattr(item.units, "declared", {})) for item in inputs}
    configs = {name: one.description or "" for name, one in builder.builder_configs.items()}
    default = builder.default_builder_config
    Manifest(
        fingerprint=fingerprint,
        options=code_fingerprint.limiting_options(config, options),
        quarantined={one.name: len(one.quarantined) for one in results if one.quarantined},
        splits={name: rule for name, rule in rules.items() if rule},
        content=content,
        provenance={
            "software": {
                "my_datasets": __version__,
                "tensorflow_datasets": tfds.__version__,
                "zlib": zlib.ZLIB_RUNTIME_VERSION,
            },
            "sources": [
                {"url": _without_secrets(url), "bytes": info.size, "sha256": info.checksum}
                for url, info in sorted(downloads.items())
            ],
            "licence": builder.info.redistribution_info.license or "",
            "release_notes": {str(version): note for version, note in notes.items()},
            "reproduce": build_job.rebuild_command(builder, config, options),
        },
        metadata=essentials(target),
        statistics=statistics,
        constraints={name: one.to_json() for name, one in builder.CONSTRAINTS.items()},
        configs={"default": default.name if default else None, "names": configs} if configs else {},
        metadata_copy=recorded_files.of_version(target),
        files={**by_workers, **recorded_files.of_files(target, shards)},
    ).write(target)


def renew_copy(version_dir: Path) -> None:
    """Updates the manifest's copy of `dataset_info.json`, if any, after TFDS updated the file."""
    manifest = Manifest.read(version_dir)
    if manifest is not None and manifest.metadata_copy:
        name = layout.METADATA_FILES[0]
        copy = {**manifest.metadata_copy, name: recorded_files.of_version(version_dir)[name]}
        replace(manifest, metadata_copy=copy, metadata=essentials(version_dir)).write(version_dir)


def _without_secrets(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    query = [
        (name, value)
        for name, value in urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
        if not _SECRET.search(name)
    ]
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query=urllib.parse.urlencode(query)).geturl()
