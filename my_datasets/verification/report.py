"""The result of a verification."""

from dataclasses import dataclass
from enum import StrEnum

from my_datasets.core.issue import Issue, Severity


class Level(StrEnum):
    """How much to verify.

    `FAST` compares metadata, names and sizes, and reads no shard. `BYTES` reads all shards and
    compares their SHA-256, or each record's checksum if that is unknown or different. `DEEP` also
    parses each example, and compares digests.
    """

    FAST = "fast"
    BYTES = "bytes"
    DEEP = "deep"


@dataclass(frozen=True)
class Report:
    """The result of verifying a version.

    Attributes:
      name: The version's full name.
      path: Its directory.
      level: How much was verified.
      issues: The problems found, errors first.
      examples: Its declared number of examples.
      bytes: The size of the verified shards.
      digest: The digest of the data, after deep verification without errors; else None.
      not_checked: What could not be checked, and why.
      seconds: The duration.
      was_rebuilt: Whether it was compared with a rebuild.
      signed_by: The fingerprint of the trusted key that signed it; None if it was not checked or
        there is none.
      resumed: The number of shards that an interrupted earlier run had verified.
    """

    name: str
    path: str
    level: Level
    issues: tuple[Issue, ...]
    examples: int
    bytes: int
    digest: str | None
    not_checked: tuple[str, ...]
    seconds: float
    was_rebuilt: bool = False
    resumed: int = 0
    signed_by: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether there are no errors."""
        return not any(issue.severity is Severity.ERROR for issue in self.issues)

    def to_json(self) -> dict[str, object]:
        """Returns the report as JSON."""
        return {
            "name": self.name, "path": self.path, "level": self.level.value, "good": self.is_good,
            "examples": self.examples, "bytes": self.bytes, "digest": self.digest,
            "not_checked": list(self.not_checked), "rebuilt": self.was_rebuilt,
            "resumed": self.resumed, "signed_by": self.signed_by,
            "seconds": round(self.seconds, 3),
            "issues": [issue.to_json() for issue in self.issues],
        }  # fmt: skip
