"""What a check finds: issues, each about one thing, with what was expected and how to fix it."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from my_datasets.errors import explain


class Severity(StrEnum):
    """How bad an issue is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Issue:
    """One finding.

    Attributes:
      code: A short name for its kind, the same in all releases.
      node: What it is about: a file with a line, a split with an example, a feature.
      problem: What is wrong, one sentence.
      fix: What to do.
      expected: What was expected, if that is not plain.
      found: What was found, if the problem does not say it.
      severity: How bad it is.
    """

    code: str
    node: str
    problem: str
    fix: str
    expected: str = ""
    found: str = ""
    severity: Severity = Severity.ERROR

    def to_json(self) -> dict[str, Any]:
        """Returns it for scripts."""
        return {**asdict(self), "severity": self.severity.value}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Issue":
        """Returns what `to_json` wrote."""
        if "mend" in value:  # its former name, in checkpoints of older versions
            value = {**value, "fix": value["mend"]}
            del value["mend"]
        return cls(**{**value, "severity": Severity(value["severity"])})

    def __str__(self) -> str:
        """Returns a few lines for people."""
        return explain(
            f"{self.severity.value}: {self.node}: {self.problem} [{self.code}]",
            f"Expected: {self.expected}" if self.expected else "",
            f"Found: {self.found}" if self.found else "",
            fix=self.fix,
        )
