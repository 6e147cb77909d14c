"""What is known of a version, from its metadata, for those who describe it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from my_datasets.errors import IncompleteVersionError, explain
from my_datasets.exporting.features import Feature, features, modalities
from my_datasets.metadata.dataset_info import Declared, dataset_info
from my_datasets.metadata.manifest import Manifest
from my_datasets.printable import printable
from my_datasets.storage import addresses


@dataclass(frozen=True)
class SummaryFile:
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
    files: Sequence[SummaryFile] = ()

    @property
    def descriptions(self) -> dict[str, str]:
        """What each feature is, by name."""
        return {one.name: one.description for one in self.features}

    @classmethod
    def read(cls, version_dir: Path) -> "About":
        """Returns what the metadata of a prepared version say.

        Raises:
          OSError, IncompleteVersionError, MALFORMED: They cannot be read; see
            `my_datasets.metadata.dataset_info`.
        """
        info = dataset_info(version_dir)
        require_own_metadata(version_dir)
        declared = Declared.read(version_dir)
        manifest = Manifest.read(version_dir)
        found = features(version_dir)
        name, _, version = declared.name.partition(":")
        licence = info.get("redistributionInfo", {}).get("license")
        made = manifest.provenance.get("licence") if manifest else ""
        return cls(
            name, version, _text(info, "description"), _clean(licence or made),
            _text(info, "citation"), tuple(map(_clean, info.get("location", {}).get("urls", []))),
            _clean(info.get("releaseNotes", {}).get(version)),
            {split: sum(one.examples for one in some) for split, some in declared.splits.items()},
            tuple(found), modalities(found, manifest.statistics if manifest else {}),
            manifest.content.digest if manifest and manifest.content else "",
        )  # fmt: skip


def require_own_metadata(version_dir: Path) -> None:
    """Refuses a version of which a file is a link that leads elsewhere, except for shards.

    What is written of it for others could hold what is in that file, such as a private key.

    Raises:
      IncompleteVersionError: It has such a link, or its metadata cannot be read.
    """
    if addresses.is_remote(version_dir):
        return
    shards = {one.name for some in Declared.read(version_dir).splits.values() for one in some}
    own = os.path.realpath(version_dir)
    for path in sorted(version_dir.iterdir()):
        if not path.is_symlink() or path.name in shards:
            continue
        if not Path(os.path.realpath(path)).is_relative_to(own):
            raise IncompleteVersionError(
                explain(
                    f"{path} is a link that leads out of the version's directory.",
                    f"It leads to: {os.path.realpath(path)}",
                    fix="look at that file; if it belongs to the version, copy it in place of the "
                    "link",
                )
            )


def _text(info: Mapping[str, Any], name: str) -> str:
    return _clean(info.get(name))


def _clean(text: Any) -> str:
    """Returns a text for pages and cards; see `printable`."""
    return printable(str(text or "")).strip()
