"""The manifest: how a prepared version was made, in a JSON file beside its shards."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from my_datasets.errors import IncompleteVersionError
from my_datasets.metadata.content import Content
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.metadata.recorded_files import check_files
from my_datasets.printable import clipped
from my_datasets.storage.json_files import MOST_MANIFEST_BYTES, MalformedJsonError, read_json
from my_datasets.storage.regular_files import write_whole

FILE_NAME = "my_datasets_manifest.json"
_FORMAT = 2
_PERCENTILES = 101


@dataclass(frozen=True)
class Manifest:
    """How a prepared version was made, and what it contains.

    Attributes:
      fingerprint: A hash of each thing that determines the data.
      options: The options that changed its content, such as a limit of examples.
      quarantined: The number of quarantined examples, for each split that has any.
      splits: The rule by which the rows of each split were chosen, if declared.
      content: Its content; None if it was not examined.
      provenance: Where it comes from, and the software that made it.
      statistics: Statistics of the values of each feature, by split: `docs/statistics.md`.
      constraints: The builder's constraints on the values of each feature.
      configs: The `names` of all configs of the dataset, with the description of each, and the
        `default`; empty if it has none, or they are unknown.
      metadata: Other fields of TFDS's metadata that affect readers: see
        `dataset_info.essentials_of`.
      metadata_copy: TFDS's metadata: see `recorded_files.of_version`. Empty in manifests that were
        written before this was recorded.
      files: The size and SHA-256 of sidecars and other files: see `recorded_files.of_files`.
    """

    fingerprint: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)
    splits: dict[str, Any] = field(default_factory=dict)
    content: Content | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    statistics: dict[str, Any] = field(default_factory=dict)
    constraints: dict[str, Any] = field(default_factory=dict)
    configs: dict[str, Any] = field(default_factory=dict)
    metadata_copy: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Writes the manifest into a version's directory."""
        whole = {
            "format": _FORMAT,
            **{one.name: getattr(self, one.name) for one in fields(self)},
            "content": self.content.to_json() if self.content else None,
        }
        whole["seal"] = _seal(whole)
        write_whole(directory / FILE_NAME, json.dumps(whole, indent=2, sort_keys=True) + "\n")

    @classmethod
    def read(cls, directory: Path) -> "Manifest | None":
        """Returns the manifest of a version; None if it has none, like data that TFDS built.

        Raises:
          IncompleteVersionError: It cannot be understood.
        """
        path = directory / FILE_NAME
        try:
            whole = read_json(path, MOST_MANIFEST_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, MalformedJsonError) as error:
            raise _unreadable(path, str(error)) from None
        form = whole.pop("format", None) if isinstance(whole, dict) else None
        if form != _FORMAT:
            raise _unreadable(path, f"format {form}")
        try:
            if whole.pop("seal") != _seal({"format": form, **whole}):
                raise ValueError("it was edited, or damaged: its checksum is another one")
            content = whole.pop("content")
            check_files(whole.get("files", {}))
            if not all(isinstance(value, dict) for value in whole.values()):
                raise TypeError("a field is no object")
            _check_statistics(whole.get("statistics", {}))
            return cls(**whole, content=Content.from_json(content) if content else None)
        except MALFORMED as error:
            raise _unreadable(path, f"{type(error).__name__}: {error}") from None


# The parts of a feature's statistics that describe a distribution of numbers.
_DISTRIBUTIONS = ("lengths", "bytes", "heights", "widths", "values_per_example")
_COUNTED = {"label": "classes", "image": "formats"}
_NEEDED = {"label": ("classes",), "image": ("formats", "bytes")}
# Counts of unusual values, by kind.
_ODD = ("nan", "infinite", "outside", "unknown", "empty", "not_text")


def _check_statistics(given: Mapping[str, Any]) -> None:
    """Checks what readers of statistics rely on; raises what `MALFORMED` lists."""
    for split in given.values():
        _check_counts(split["examples"])
        for name, one in split["features"].items():
            if one["kind"] not in ("number", "label", "text", "image"):
                raise ValueError(f"statistics of {name!r} are of the kind {one['kind']!r}")
            _check_feature(one)


def _check_feature(one: Mapping[str, Any]) -> None:
    for needed in _NEEDED.get(one["kind"], ()):
        one[needed]
    _check_counts(one["missing"], one.get("values", 0), *(one.get(odd, 0) for odd in _ODD))
    for counted in _COUNTED.values():
        _check_counts(*one.get(counted, {}).values())
    parts = [one[part] for part in _DISTRIBUTIONS if part in one]
    for part in [one, *parts] if one["kind"] == "number" else parts:
        if "min" in part:
            _check_distribution(part)
    if "values_per_example" in one:
        _check_distribution(one["values_per_example"])
    if "sample_rate" in one:
        _check_counts(one["sample_rate"])
        if not one["sample_rate"]:
            raise ValueError("statistics have a sample rate of 0")
    if "channels" in one:
        means, stds = one["channels"]["means"], one["channels"]["stds"]
        _check_numbers(*means, *stds)
        _check_counts(one["channels"]["images"])
        if len(means) != len(stds):
            raise ValueError("statistics have means of other channels than deviations")
    if "distinct" in one:
        _check_counts(one["distinct"]["number"])
        one["distinct"]["is_exact"], one["top"]
    if "top" in one:
        one["top"]["is_exact"]
        for value in one["top"]["values"]:
            _check_counts(value["count"])
            if not isinstance(value["value"], (str, int, float)):
                raise TypeError(f"statistics have {value['value']!r:.80} instead of a value")


def _check_distribution(part: Mapping[str, Any]) -> None:
    _check_numbers(*(part[of] for of in ("min", "max", "mean", "std")))
    counts, edges = part["histogram"]["counts"], part["histogram"]["edges"]
    _check_numbers(*part["percentiles"], *edges)
    _check_counts(*counts)
    if len(part["percentiles"]) != _PERCENTILES or len(edges) != len(counts) + 1:
        raise ValueError("statistics have other numbers of percentiles, or of a histogram's edges")


def _check_numbers(*given: object) -> None:
    for one in given:
        if isinstance(one, bool) or not isinstance(one, (int, float)):
            raise TypeError(f"statistics have {str(one)[:80]!r} instead of a number")


def _check_counts(*given: Any) -> None:
    _check_numbers(*given)
    if any(one < 0 for one in given):
        raise ValueError("statistics have a negative count")


def _seal(whole: dict[str, Any]) -> str:
    """Returns the SHA-256 of a manifest without its seal."""
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _unreadable(path: Path, found: str) -> IncompleteVersionError:
    return IncompleteVersionError(
        f"{path} is not a manifest of format {_FORMAT}.",
        f"Found: {clipped(found)}",
        fix="build or pull the version again, or use the release of my_datasets that made it",
    )
