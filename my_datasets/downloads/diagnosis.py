"""Diagnoses downloaded files that are not the expected ones."""

import posixpath
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from my_datasets.errors import ChecksumError, DownloadError, explain

# How an HTML page begins, after white space and a byte order mark.
_HTML = (b"<!doctype html", b"<html", b"<head", b"<script", b"<body")
# Files with these suffixes may legitimately be HTML.
_MAY_BE_HTML = ("", ".html", ".htm", ".xhtml", ".php", ".asp", ".aspx", ".jsp", ".txt")
_LOOKED_AT = 1024


@dataclass(frozen=True)
class Expected:
    """The recorded size and checksum of a file.

    Attributes:
      size: The size in bytes.
      sha256: The SHA-256, in hexadecimal.
    """

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

    Args:
      path: The file.
      url: The address it was downloaded from.
      sha256: Its SHA-256, in hexadecimal.
      expected: The recorded size and checksum; None if not recorded.
      declared: The size that the server declared; None if it declared none.
      fix: The command with which the user accepts a changed file.

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
            explain(
                f"{url} gave a web page in place of the file.",
                f"Found: {size:,} bytes that begin with {_beginning(path)}",
                _recorded(expected),
                fix="open the address in a browser: it may want a login, a consent, or have "
                "moved; a file that was got by hand goes into --manual-dir",
            )
        )
    if expected is None:
        return
    if size < expected.size and declared != size:
        raise DownloadError(
            explain(
                f"{url} gave only a part of the file.",
                f"Found: {size:,} bytes; {_recorded(expected)}",
                fix="run the same again later, or name a mirror",
            )
        )
    raise ChecksumError(
        explain(
            f"{url} is another file than the recorded one.",
            f"Found: {size:,} bytes, SHA-256 {sha256}",
            _recorded(expected),
            fix=f"if the new file is right, {fix}, and raise the dataset's VERSION; if not, "
            "take the recorded one from a mirror",
        )
    )


def _recorded(expected: Expected | None) -> str:
    if expected is None:
        return ""
    return f"Recorded: {expected.size:,} bytes, SHA-256 {expected.sha256}"


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return repr(file.read(40))
