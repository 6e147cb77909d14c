"""Versions that are not to be used any more, and why: TFDS's `BLOCKED_VERSIONS`, without TFDS."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from my_datasets.core.version import VersionNumber


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
