"""References to datasets: `name[/config][:version]`."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from my_datasets.core.version import VersionPattern
from my_datasets.errors import InvalidReferenceError

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder

# TFDS's own alphabets (tensorflow_datasets/core/naming.py), less its namespaces and its keyword
# arguments: this package's datasets have neither.
_NAME = re.compile(r"[a-zA-Z][\w]*", re.ASCII)
_CONFIG = re.compile(r"[\w+\-.]+", re.ASCII)

_FORM = "a reference has the form name[/config][:version], with version as 1.2.3 or 1.*.*"


@dataclass(frozen=True)
class DatasetReference:
    """A dataset, optionally with one config and a pattern of versions.

    Attributes:
      name: The dataset's name in snake case.
      config: The builder config's name, or None for the default one.
      version: The matching versions, or None for the builder's current one.
    """

    name: str
    config: str | None = None
    version: VersionPattern | None = None

    @classmethod
    def of(cls, reference: "str | DatasetReference") -> "DatasetReference":
        """Returns a reference, given as such or as text.

        Raises:
          InvalidReferenceError: As `parse`.
        """
        return reference if isinstance(reference, DatasetReference) else cls.parse(reference)

    @classmethod
    def parse(cls, text: str) -> "DatasetReference":
        """Parses a reference such as `digits`, `digits:1.*.*` or `cats_and_dogs/full:1.0.0`.

        Raises:
          InvalidReferenceError: `text` is not a reference; the message names the part that is wrong
            and, if it can be guessed, what was meant.
        """
        if not text.strip():
            raise _invalid(text, "it is empty", "name a dataset, for example 'digits'")
        body, colon, version_text = text.partition(":")
        name, slash, config = body.partition("/")
        if not _NAME.fullmatch(name):
            raise _invalid(
                text,
                f"the name {name!r} may hold only letters, digits and _, and starts with a letter",
                "correct the name; `my-datasets list` shows the known ones",
            )
        if slash and not _CONFIG.fullmatch(config):
            raise _invalid(
                text,
                f"the config {config!r} after the / is empty or has a character other than "
                "letters, digits, _ + - .",
                f"write {name!r} for the default config, or {name + '/config'!r}",
            )
        version = VersionPattern.parse(version_text)
        if colon and version is None:
            raise _invalid(
                text,
                f"the version {version_text!r} is not three parts, each a number or *",
                f"did you mean {body + ':' + _guess_version(version_text)!r}?",
            )
        return cls(name, config or None, version)

    def __str__(self) -> str:
        config = f"/{self.config}" if self.config else ""
        version = f":{self.version}" if self.version else ""
        return f"{self.name}{config}{version}"


def reference_to(builder: "DatasetBuilder") -> str:
    """Returns the exact reference of a builder, such as `name/config:1.0.0`."""
    config = f"/{builder.builder_config.name}" if builder.builder_config else ""
    return f"{builder.name}{config}:{builder.version}"


def _invalid(text: str, fact: str, fix: str) -> InvalidReferenceError:
    return InvalidReferenceError(
        f"{text!r} is not a dataset reference: {fact}.", f"Expected: {_FORM}.", fix=fix
    )


def _guess_version(text: str) -> str:
    """Returns the nearest well-formed pattern: numbers kept, the rest wildcards."""
    parts = [part if part.isdecimal() else "*" for part in text.lstrip("vV").split(".")[:3]]
    parts += ["*"] * (3 - len(parts))
    return ".".join(str(int(part)) if part != "*" else part for part in parts)
