"""The manifest: what a prepared version was made of, in a JSON file beside its shards."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from my_datasets.errors import IncompleteVersionError, explain

FILE_NAME = "my_datasets_manifest.json"
_FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """What a prepared version was made of.

    Attributes:
      fingerprint: A hash of each thing that determines the data.
      options: The options that changed what is in it, such as a limit of examples.
      quarantined: How many examples were set aside, for each split that has any.
      splits: By which rule the rows of each split were chosen, where it was declared.
    """

    fingerprint: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)
    splits: dict[str, Any] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Writes the manifest into a version's directory."""
        content = json.dumps({"format": _FORMAT, **asdict(self)}, indent=2, sort_keys=True)
        (directory / FILE_NAME).write_text(content + "\n", "utf-8")

    @classmethod
    def read(cls, directory: Path) -> "Manifest | None":
        """Returns the manifest of a version; None if it has none, as data that TFDS built.

        Raises:
          IncompleteVersionError: It cannot be understood.
        """
        path = directory / FILE_NAME
        try:
            content = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            content = {}
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise IncompleteVersionError(
                explain(
                    f"{path} is not a manifest of format {_FORMAT}.",
                    mend="build or pull the version anew, or use the release of my_datasets that "
                    "made it",
                )
            )
        return cls(**content)
