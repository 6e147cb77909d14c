"""Diagnoses downloaded files that are not the expected ones."""

import posixpath
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from my_datasets.errors import ChecksumError, DownloadError

# How an HTML page begins, after white space and a byte order mark.
_HTML = (b"<!doctype html", b"<html", b"<head", b"<script", b"<body")
# Files with these suffixes may legitimately be HTML.
_MAY_BE_HTML = ("", ".html", ".htm", ".xhtml", ".php", ".asp", ".aspx", ".jsp", ".txt")
_LOOKED_AT = 1024


@dataclass(frozen=True)
class Expected:
    """The recorded size and checksum of a file."""

    size: int
    sha256: str


def is_html(path: Path) -> bool:
    """Returns whether a file begins like a web page."""
    with path.open("rb") as file:
        begin = file.read(_LOOKED_AT)
    return begin.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_HTML)


def check(
    path: Path, url: str, *, sha256: str, expected: Expected | None, declared: int | None, fix: str
) -> None:
    """Checks that a downloaded file is the expected one.

    `declared` is the size that the server declared, and `fix` the command that accepts a changed
    file.

    Raises:
      DownloadError: It is a web page instead of the file, or it is truncated.
      ChecksumError: It differs from the recorded file.
    """
    size = path.stat().st_size
    if expected is not None and (size, sha256) == (expected.size, expected.sha256):
        return
    ending = posixpath.splitext(urllib.parse.urlsplit(url).path)[1].lower()
    # A file smaller than the recorded one may be an error page, whatever its suffix.
    suspicious = ending not in _MAY_BE_HTML or (expected is not None and size < expected.size)
    if suspicious and is_html(path):
        raise DownloadError(
            f"{url} returned a web page instead of the file.",
            f"Found: {size:,} bytes that start with {_beginning(path)}",
            _recorded(expected),
            fix="open the URL in a browser: it may require a login or consent, or have moved; "
            "put a manually downloaded file into --manual-dir",
        )
    if expected is None:
        return
    if size < expected.size and declared != size:
        raise DownloadError(
            f"{url} returned only a part of the file.",
            f"Found: {size:,} bytes; {_recorded(expected)}",
            fix="try again later, or add a mirror",
        )
    raise ChecksumError(
        f"{url} differs from the recorded file.",
        f"Found: {size:,} bytes, SHA-256 {sha256}",
        _recorded(expected),
        fix=f"if the new file is right, {fix}, and raise the dataset's VERSION; if not, "
        "download the recorded one from a mirror",
    )


def _recorded(expected: Expected | None) -> str:
    if expected is None:
        return ""
    return f"Recorded: {expected.size:,} bytes, SHA-256 {expected.sha256}"


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return repr(file.read(40))
