"""Issues: the findings of checks, with what was expected and how to fix it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

from my_datasets.core.json_types import Json
from my_datasets.errors import explain


class Severity(StrEnum):
    """The severity of an issue."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Issue:
    """One finding.

    Attributes:
      code: A short name for its kind, the same in all releases.
      node: What it is about: a file with a line, a split with an example, a feature.
      problem: What is wrong, in one sentence.
      expected: What was expected, if that is not obvious.
      found: What was found, if `problem` does not say.
    """

    code: str
    node: str
    problem: str
    fix: str
    expected: str = ""
    found: str = ""
    severity: Severity = Severity.ERROR

    def to_json(self) -> dict[str, Json]:
        """Returns a form for scripts."""
        return {**asdict(self), "severity": self.severity.value}

    @classmethod
    def from_json(cls, value: Mapping[str, str]) -> "Issue":
        """Converts what `to_json` returned."""
        if "mend" in value:  # the former name, in checkpoints of older versions
            value = {"fix" if name == "mend" else name: one for name, one in value.items()}
        texts = {name: one for name, one in value.items() if name != "severity"}
        return cls(**texts, severity=Severity(value["severity"]))

    def __str__(self) -> str:
        return explain(
            f"{self.severity.value}: {self.node}: {self.problem} [{self.code}]",
            f"Expected: {self.expected}" if self.expected else "",
            f"Found: {self.found}" if self.found else "",
            fix=self.fix,
        )
