"""What is known of a version, from its metadata, for those who describe it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from my_datasets.core.declared import Declared
from my_datasets.core.manifest import Manifest
from my_datasets.exporting.features import Feature, features, modalities


@dataclass(frozen=True)
class File:
    """A file.

    Attributes:
      name: What it is called.
      url: Where it is: an address, or a path beside the description.
      bytes: Its size.
      sha256: Of its contents, in hexadecimal.
      kind: Its media type.
    """

    name: str
    url: str
    bytes: int
    sha256: str
    kind: str = "application/octet-stream"


@dataclass(frozen=True)
class About:
    """What is known of a version.

    Attributes:
      name: Its name, with the config.
      version: Its version.
      description: What it is, in Markdown.
      licence: Its licence.
      citation: How it is cited.
      urls: Where there is more about it.
      notes: What its release notes say of this version.
      examples: How many examples each split has.
      features: Its features.
      modalities: What it is of.
      digest: That of its content; empty if it is not known.
      published: When, in ISO 8601; empty if it is not.
      files: Its files.
    """

    name: str
    version: str
    description: str = ""
    licence: str = ""
    citation: str = ""
    urls: Sequence[str] = ()
    notes: str = ""
    examples: Mapping[str, int] = field(default_factory=dict)
    features: Sequence[Feature] = ()
    modalities: Sequence[str] = ()
    digest: str = ""
    published: str = ""
    files: Sequence[File] = ()

    @property
    def descriptions(self) -> dict[str, str]:
        """What each feature is, by name."""
        return {one.name: one.description for one in self.features}

    @classmethod
    def read(cls, version_dir: Path) -> "About":
        """Returns what the metadata of a prepared version say.

        Raises:
          OSError, IncompleteVersionError, MALFORMED: They cannot be read; see
            `my_datasets.core.declared`.
        """
        info = json.loads((version_dir / "dataset_info.json").read_text("utf-8"))
        if not isinstance(info, dict):
            raise TypeError("dataset_info.json is no object")
        declared = Declared.read(version_dir)
        manifest = Manifest.read(version_dir)
        found = features(version_dir)
        name, _, version = declared.name.partition(":")
        licence = info.get("redistributionInfo", {}).get("license")
        made = manifest.provenance.get("licence") if manifest else ""
        return cls(
            name, version, _text(info, "description"), str(licence or made or "").strip(),
            _text(info, "citation"), tuple(map(str, info.get("location", {}).get("urls", []))),
            str(info.get("releaseNotes", {}).get(version, "")).strip(),
            {split: sum(one.examples for one in some) for split, some in declared.splits.items()},
            tuple(found), modalities(found, manifest.statistics if manifest else {}),
            manifest.content.digest if manifest and manifest.content else "",
        )  # fmt: skip


def _text(info: Mapping[str, Any], name: str) -> str:
    return str(info.get(name) or "").strip()
