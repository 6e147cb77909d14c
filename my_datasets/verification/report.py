"""What a verification finds, and how far it is."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from my_datasets.core.issue import Issue, Severity


class Level(StrEnum):
    """How much is looked at.

    `FAST` reads no shard: metadata, names and sizes. `BYTES` reads all shards and compares their
    SHA-256, or each record's checksum if that is not known or not right. `DEEP` takes each example
    apart, too, and compares digests.
    """

    FAST = "fast"
    BYTES = "bytes"
    DEEP = "deep"


@dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
      name: The version's full name.
      path: Its directory.
      level: How much was looked at.
      issues: What is wrong, errors first.
      examples: How many examples it is declared to have.
      bytes: The size of the shards that were looked at.
      digest: The digest of what is there: after a deep look without errors; else None.
      not_checked: What could not be looked at, and why.
      seconds: How long it took.
      was_rebuilt: Whether it was built again, and compared with that.
      signed_by: The fingerprint of the trusted key that signed it; None if nobody looked, or none
        of them did.
      resumed: How many shards were not read, as a run before that was interrupted has done it.
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
        """Whether there is no error."""
        return not any(issue.severity is Severity.ERROR for issue in self.issues)

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
        return {
            "name": self.name,
            "path": self.path,
            "level": self.level.value,
            "good": self.is_good,
            "examples": self.examples,
            "bytes": self.bytes,
            "digest": self.digest,
            "not_checked": list(self.not_checked),
            "rebuilt": self.was_rebuilt,
            "resumed": self.resumed,
            "signed_by": self.signed_by,
            "seconds": round(self.seconds, 3),
            "issues": [issue.to_json() for issue in self.issues],
        }


@dataclass(frozen=True)
class VerifyProgress:
    """How far a verification is.

    Attributes:
      done: Bytes of shards that were looked at.
      total: Bytes of all shards.
      shard: The one that was finished last.
    """

    done: int
    total: int
    shard: str
