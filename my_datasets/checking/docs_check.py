"""Checks the files beside a builder: README, citation, tags and checksums."""

import difflib
import re
from collections.abc import Iterator

from my_datasets.checking.target import CheckTarget
from my_datasets.core.issue import Issue, Severity

_ENTRY = re.compile(r"^\s*@\w+\s*\{", re.MULTILINE)
_SHA256 = re.compile(r"[0-9a-f]{64}")


def issues(subject: CheckTarget, valid_tags: frozenset[str]) -> Iterator[Issue]:
    """Yields the issues in these files.

    Args:
      subject: The builder.
      valid_tags: The tags that TFDS knows.
    """
    readme = subject.folder / "README.md"
    prose = [
        line
        for line in (readme.read_text("utf-8").splitlines() if readme.is_file() else [])
        if line.strip() and not line.startswith("#")
    ]
    if not prose:
        yield Issue(
            "readme", "README.md", "There is no page that says what the data are.",
            "write README.md beside the builder; its first line of prose is the summary",
            severity=Severity.WARNING,
        )  # fmt: skip
    citations = subject.folder / "CITATIONS.bib"
    if not citations.is_file() or not _ENTRY.search(citations.read_text("utf-8")):
        yield Issue(
            "citation", "CITATIONS.bib", "There is no BibTeX entry.",
            "write CITATIONS.bib beside the builder, so that the data can be cited",
            severity=Severity.WARNING,
        )  # fmt: skip
    yield from _tags(subject, valid_tags)
    yield from _checksums(subject)


def _tags(subject: CheckTarget, valid: frozenset[str]) -> Iterator[Issue]:
    path = subject.folder / "TAGS.txt"
    if not path.is_file():
        yield Issue(
            "tags", "TAGS.txt", "There are no tags.",
            "write TAGS.txt beside the builder, one tag of TFDS in each line",
            severity=Severity.WARNING,
        )  # fmt: skip
        return
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        tag = line.partition("#")[0].strip()
        if not tag or tag in valid:
            continue
        near = difflib.get_close_matches(tag, valid, n=1)
        yield Issue(
            "tags",
            f"TAGS.txt:{number}",
            f"TFDS knows no tag {tag!r}.",
            f"write {near[0]}" if near else "take it out, or choose one of TFDS's valid_tags.txt",
        )


def _checksums(subject: CheckTarget) -> Iterator[Issue]:
    path = subject.checksums
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split("\t")
        found = ""
        if len(parts) not in (3, 4):
            found = f"{len(parts)} columns"
        elif not parts[1].isdecimal() or not int(parts[1]):
            found = f"the size {parts[1]!r}"
        elif not _SHA256.fullmatch(parts[2]):
            found = f"the SHA-256 {parts[2]!r}"
        if found:
            yield Issue(
                "checksums",
                f"{path.name}:{number}",
                "The line records no file.",
                f"my-datasets checksums {subject.name} --update",
                expected="address, size, SHA-256 and file name, separated by tabs",
                found=found,
            )
