"""Versions that are not to be used any more, and why: TFDS's `BLOCKED_VERSIONS`, without TFDS."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from my_datasets.core.version import VersionNumber
from my_datasets.metadata.dataset_info import dataset_info


@dataclass(frozen=True)
class Blocked:
    """What a builder's code says must not be used; with TFDS's meaning.

    Attributes:
      versions: The reason, or None, for each version of which all configs are blocked.
      configs: The reason, or None, by version and config.
    """

    versions: Mapping[str, str | None] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)

    def reason(self, version: VersionNumber | str, config: str | None) -> str | None:
        """Returns why a version must not be used; None if it may be.

        Args:
          version: The version.
          config: Its config; None for a dataset that has none.
        """
        text = str(version)
        if text in self.versions:
            return self.versions[text] or f"Version {text} is blocked."
        if config is not None and config in self.configs.get(text, {}):
            said = self.configs[text][config]
            return said or f"Config {config} for version {text} is blocked."
        return None


def reason_in_metadata(version_dir: Path) -> str | None:
    """Returns why a prepared version must not be used, as its own metadata say it; or None.

    TFDS writes it there if the builder gives `is_blocked` to its `DatasetInfo`.
    """
    try:
        return dataset_info(version_dir).get("isBlocked") or None
    except OSError:
        return None  # whoever reads the version says what is wrong with its metadata
