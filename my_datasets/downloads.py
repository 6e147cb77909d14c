"""Diagnoses downloaded files that are not the expected ones."""

import contextlib
import email.utils
import hashlib
import json
import os
import posixpath
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import filelock
import requests
import urllib3

from my_datasets.errors import ChecksumError, DownloadError, MyDatasetsError
from my_datasets.printable import PrintableError

# How an HTML page begins, after white space and a byte order mark.
_HTML = (b"<!doctype html", b"<html", b"<head", b"<script", b"<body")
# Files with these suffixes may legitimately be HTML.
_MAY_BE_HTML = ("", ".html", ".htm", ".xhtml", ".php", ".asp", ".aspx", ".jsp", ".txt")
_PAGE_BEGIN = 1024


@dataclass(frozen=True)
class Expected:
    """The recorded size and checksum of a file."""

    size: int
    sha256: str


def _check(job: "_Job", sha256: str, declared: int | None) -> None:
    """Checks that a downloaded file is the expected one.

    `declared` is the size that the server declared.

    Raises:
      DownloadError: It is a web page instead of the file, or it is truncated.
      ChecksumError: It differs from the recorded file.
    """
    path, url, expected = job.partial.path, job.source, job.expected
    size = path.stat().st_size
    recorded = ""
    if expected is not None:
        if (size, sha256) == (expected.size, expected.sha256):
            return
        recorded = f"Recorded: {expected.size:,} bytes, SHA-256 {expected.sha256}"
    ending = posixpath.splitext(urllib.parse.urlsplit(url).path)[1].lower()
    # A file smaller than the recorded one may be an error page, whatever its suffix.
    suspicious = ending not in _MAY_BE_HTML or (expected is not None and size < expected.size)
    with path.open("rb") as file:
        begin = file.read(_PAGE_BEGIN)
    is_html = begin.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_HTML)
    if suspicious and is_html:
        raise DownloadError(
            f"{url} returned a web page instead of the file.",
            f"Found: {size:,} bytes that start with {begin[:40]!r}",
            recorded,
            fix="open the URL in a browser: it may require a login or consent, or have moved; "
            "put a manually downloaded file into --manual-dir",
        )
    if expected is None:
        return
    if size < expected.size and declared != size:
        raise DownloadError(
            f"{url} returned only a part of the file.",
            f"Found: {size:,} bytes; {recorded}",
            fix="try again later, or add a mirror",
        )
    raise ChecksumError(
        f"{url} differs from the recorded file.",
        f"Found: {size:,} bytes, SHA-256 {sha256}",
        recorded,
        fix=f"if the new file is right, {job.fix}, and raise the dataset's VERSION; if not, "
        "download the recorded one from a mirror",
    )


@dataclass(frozen=True)
class DownloadOrigin:
    """The origin of a download."""

    url: str
    # The server's strong ETag, or its modification date, which change when the file does. Empty if
    # the server sent neither.
    validator: str
    file_name: str  # the file's name according to the server or the address


class Partial:
    """The file that a download is written to; it persists after this process ends."""

    def __init__(self, directory: Path, url: str) -> None:
        """Opens the partial download of a URL, which an earlier process may have left."""
        self._stem = hashlib.sha256(url.encode()).hexdigest()[:32]
        self._directory = directory
        self.path = directory / f"{self._stem}.partial"
        self._facts = directory / f"{self._stem}.partial.json"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Waits until no other process downloads the same file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        lock = self._directory / f"{self._stem}.partial.lock"
        # The lock file is never deleted: another process may be waiting for it.
        with filelock.FileLock(lock):
            yield

    @property
    def size(self) -> int:
        """How many bytes have been downloaded."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def origin(self) -> DownloadOrigin | None:
        """The origin of the bytes; None if unknown."""
        try:
            return DownloadOrigin(**json.loads(self._facts.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def begin(self, origin: DownloadOrigin) -> None:
        """Starts from scratch and discards the existing bytes."""
        self.path.unlink(missing_ok=True)
        self._facts.write_text(json.dumps(vars(origin)), "utf-8")
        self.path.touch()

    def sha256(self) -> str:
        """Returns the SHA-256 of the downloaded bytes, in hexadecimal."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def finish(self) -> Path:
        """Moves the complete file to its final name."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        target = self.path.replace(self.path.with_suffix(".whole"))
        self.discard()
        return target

    def discard(self) -> None:
        """Deletes the partial download."""
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)


_BLOCK = 1 << 18
# Status codes after which a retry may succeed (RFC 9110, and RFC 6585 for 429).
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
# An unresolvable host name is retried only once.
_UNRESOLVABLE_TRIES = 2


@dataclass(frozen=True)
class DownloadRetry:
    """How long to wait for a server.

    Attributes:
      tries: How many consecutive attempts may fail to bring any more bytes.
      first_wait: Seconds to wait after the first such attempt; doubled each time.
      longest_wait: Maximum wait in seconds, even if the server's `Retry-After` is longer.
      connect: Connection timeout in seconds.
      silence: Read timeout in seconds.
    """

    tries: int = 6
    first_wait: float = 0.5
    longest_wait: float = 60.0
    connect: float = 15.0
    silence: float = 60.0


@dataclass(frozen=True)
class FetchedFile:
    """A completely downloaded file."""

    path: Path
    size: int  # in bytes
    sha256: str  # in hexadecimal
    file_name: str  # the file's name according to the server
    url: str  # the address it was downloaded from


class _IncompleteError(PrintableError):
    """The response ended early or failed; the bytes received so far are kept."""

    def __init__(
        self, reason: str, wait: float | None = None, *, is_unresolvable: bool = False
    ) -> None:
        super().__init__(reason)
        self.wait = wait
        self.is_unresolvable = is_unresolvable


def fetch(
    url: str,
    directory: Path,
    *,
    sources: Sequence[str] = (),
    expected: Expected | None = None,
    verify_ssl: bool = True,
    patience: DownloadRetry | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
    fix: str = "record it",
) -> FetchedFile:
    """Downloads a file completely and verifies it; resumes an earlier partial download.

    Call it within `exclusive_download` if other processes may download the same file there.

    Args:
      url: The file's address, which also identifies it.
      directory: The target directory; the file gets a generated name.
      sources: The addresses to try, in order; by default only `url`.
      expected: The recorded size and checksum. Without it, only obvious errors are detected.
      verify_ssl: Whether to verify certificates.
      patience: How long to wait for servers.
      on_bytes: Progress callback, called with the number of new bytes; this includes bytes from an
        earlier download, and is negative if bytes are discarded.
      fix: The command with which the user accepts a changed file.

    Raises:
      DownloadError: No source provided the complete file.
      ChecksumError: The file differs from the recorded one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    partial = Partial(directory, url)
    failures: list[MyDatasetsError] = []
    counted = _Counted(on_bytes)
    for source in sources or (url,):
        job = _Job(source, partial, expected, verify_ssl, patience or DownloadRetry(), counted, fix)
        try:
            return _download(job)
        except MyDatasetsError as error:
            failures.append(error)
    raise _combined(url, failures)


def exclusive_download(url: str, directory: Path) -> contextlib.AbstractContextManager[None]:
    """Waits until no other process downloads the same file to the same directory."""
    return Partial(directory, url).locked()


class _Counted:
    """Converts sizes to differences for the progress callback."""

    def __init__(self, on_bytes: Callable[[int], None]) -> None:
        self._on_bytes = on_bytes
        self._reported = 0

    def now(self, size: int) -> None:
        self._on_bytes(size - self._reported)
        self._reported = size


@dataclass(frozen=True)
class _Job:
    """A download of one file from one source; see `fetch`."""

    source: str
    partial: Partial
    expected: Expected | None
    verify_ssl: bool
    patience: DownloadRetry
    counted: _Counted
    fix: str


def _download(job: _Job) -> FetchedFile:
    """Downloads from one source; starts over once if a resumed file turns out to be wrong."""
    partial = job.partial
    while True:
        was_resumed = partial.size > 0
        origin, declared = _complete(job)
        sha256 = partial.sha256()
        try:
            _check(job, sha256, declared)
        except MyDatasetsError:
            partial.discard()
            job.counted.now(0)
            if was_resumed:
                continue  # the resumed bytes may have come from another file
            raise
        size = partial.size
        return FetchedFile(partial.finish(), size, sha256, origin.file_name, job.source)


def _complete(job: _Job) -> tuple[DownloadOrigin, int | None]:
    """Retries until the file is complete; returns its origin and the size the server declared."""
    partial, patience = job.partial, job.patience
    farthest, tries, wait = partial.size, 0, patience.first_wait
    with requests.Session() as session:
        while True:
            try:
                return _ask(session, job)
            except _IncompleteError as error:
                reason, asked = str(error), error.wait
                enough = _UNRESOLVABLE_TRIES if error.is_unresolvable else patience.tries
            if partial.size > farthest:
                farthest, tries, wait = partial.size, 0, patience.first_wait
            tries += 1
            if tries >= min(enough, patience.tries):
                raise DownloadError(
                    f"{job.source} did not return the complete file in {tries} attempts.",
                    f"The last attempt: {reason}",
                    f"The {partial.size:,} bytes received are kept." if partial.size else "",
                    fix="run the same command again to resume, or add a mirror",
                )
            time.sleep(min(asked if asked is not None else wait, patience.longest_wait))
            wait *= 2


def _ask(session: requests.Session, job: _Job) -> tuple[DownloadOrigin, int | None]:
    """Requests the missing bytes once; returns what `_complete` does."""
    partial = job.partial
    begin, known = partial.size, partial.origin
    # Without compression in transit: ranges must refer to the file's own bytes.
    headers = {"Accept-Encoding": "identity"}
    same = known is not None and known.url == job.source and known.validator
    if known is None or not (same or job.expected):
        begin = 0  # the existing bytes may belong to another file
    if begin:
        headers["Range"] = f"bytes={begin}-"
        if known is not None and same:
            headers["If-Range"] = known.validator
    timeout = (job.patience.connect, job.patience.silence)
    with _explained(partial):
        response = session.get(
            job.source, headers=headers, stream=True, timeout=timeout, verify=job.verify_ssl
        )
        with response:
            declared = _begin(response, job.source, partial, begin, known)
            job.counted.now(partial.size)
            origin = partial.origin
            if origin is None:  # deleted by another process
                raise _IncompleteError("the partial download was deleted")
            if response.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                _receive(response, partial, job.counted)
        if declared is not None and partial.size < declared:
            raise _IncompleteError(f"received {partial.size:,} of {declared:,} bytes")
        return origin, declared


def _begin(
    response: requests.Response,
    source: str,
    partial: Partial,
    begin: int,
    known: DownloadOrigin | None,
) -> int | None:
    """Checks the response's headers; returns the size of the whole file, None if unknown."""
    status = response.status_code
    if status == HTTPStatus.PARTIAL_CONTENT and begin:
        found = re.fullmatch(
            r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip()
        )
        if found is None or int(found[1]) != begin:
            partial.discard()
            raise _IncompleteError("the server returned another range than was requested", 0.0)
        return None if found[2] == "*" else int(found[2])
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and begin:
        whole = re.fullmatch(r"bytes \*/(\d+)", response.headers.get("Content-Range", "").strip())
        if known is not None and whole is not None and int(whole[1]) == begin:
            return begin  # the file was already complete
        partial.discard()
        raise _IncompleteError("the partial download is not the beginning of the file", 0.0)
    if status != HTTPStatus.OK:
        raise _refused(response, source)
    partial.begin(DownloadOrigin(source, _validator(response), _file_name(response)))
    if response.headers.get("Content-Encoding", "identity") != "identity":
        return None  # it is decompressed while it is received
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _refused(response: requests.Response, source: str) -> Exception:
    status = response.status_code
    said = f"HTTP {status} {response.reason or ''}".strip()
    if status in _TRANSIENT:
        return _IncompleteError(said, _retry_after(response))
    return DownloadError(
        f"{source} cannot be downloaded.",
        f"The server answered: {said}",
        f"Redirected to: {response.url}" if response.history else "",
        fix="correct the URL in the builder, or add a mirror; put a manually downloaded file "
        "into --manual-dir",
    )


def _receive(response: requests.Response, partial: Partial, counted: _Counted) -> None:
    encoded = response.headers.get("Content-Encoding", "identity") != "identity"
    size = partial.size
    with partial.path.open("ab") as file:
        for block in response.raw.stream(_BLOCK, decode_content=encoded):
            file.write(block)
            size += len(block)
            counted.now(size)


@contextlib.contextmanager
def _explained(partial: Partial) -> Iterator[None]:
    """Converts network errors: `DownloadError` if a retry cannot help, or `_IncompleteError`."""
    try:
        yield
    except (requests.exceptions.SSLError, requests.exceptions.InvalidURL) as error:
        raise DownloadError(
            f"The server cannot be reached: {error}",
            fix="correct the URL, or the certificates on this machine",
        ) from error
    except requests.exceptions.TooManyRedirects as error:
        raise DownloadError(
            f"The server redirects in a loop: {error}", fix="correct the URL"
        ) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError, TimeoutError) as error:
        progress = f", after {partial.size:,} bytes" if partial.size else ""
        cause = getattr(error.args[0], "reason", None) if error.args else None
        raise _IncompleteError(
            f"{type(error).__name__}: {error}{progress}",
            is_unresolvable=isinstance(cause, urllib3.exceptions.NameResolutionError),
        ) from error


def _validator(response: requests.Response) -> str:
    """Returns the validator for `If-Range` (RFC 9110, section 13.1.5): no weak ETag."""
    tag = response.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")


def _retry_after(response: requests.Response) -> float | None:
    """Returns how many seconds the server asks to wait (RFC 9110, section 10.2.3)."""
    asked = response.headers.get("Retry-After", "").strip()
    if asked.isdecimal():
        return float(asked)
    date = email.utils.parsedate_tz(asked)
    return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else None


def _file_name(response: requests.Response) -> str:
    """Returns the name of the file, without any directory."""
    given = re.search(
        r"""filename\s*=\s*(?:"([^"]+)"|([^;\s]+))""",
        response.headers.get("Content-Disposition", ""),
        re.IGNORECASE,
    )
    path = urllib.parse.unquote(urllib.parse.urlsplit(response.url).path)
    name = (given[1] or given[2]) if given else path
    return posixpath.basename(name.replace("\\", "/").rstrip("/")) or "unknown_name"


def _combined(url: str, failures: Sequence[MyDatasetsError]) -> MyDatasetsError:
    if len(failures) == 1:
        return failures[0]
    return type(failures[0])(
        f"None of the {len(failures)} addresses of {url} returned it.",
        *("\n  ".join((failure.problem, *failure.facts)) for failure in failures),
        fix="see the error of each above, then run the same command again",
    )
