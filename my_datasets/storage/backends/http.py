"""A read-only store on any HTTP server, and the detection of truncated HTTP answers.

Python's `http.client` takes a connection that ends within the head of an answer for the end of the
head, so what arrived looks like an answer without contents. Servers send the length of their
contents; an answer without it was cut off.
"""

import email.utils
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from my_datasets.errors import StoreError, StoreUnavailableError
from my_datasets.printable import clipped
from my_datasets.storage.addresses import parts_without_secrets
from my_datasets.storage.store import (
    BLOCK,
    ReadOnlyStore,
    StoredFile,
    no_answer,
    no_file,
    too_large,
)

# Statuses after which asking again may help (RFC 9110, and RFC 6585 for 429).
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_MISSING = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_TIMEOUT = (15.0, 60.0)
_MOST_REDIRECTS = 5
_PORTS = {"http": 80, "https": 443}
_CONNECTIONS = 32
_WITHOUT_CONTENTS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


def is_whole(status: int, headers: Mapping[str, Any]) -> bool:
    """Returns whether the headers of an answer give the length of its contents."""
    names = {name.lower() for name in headers}
    return status in _WITHOUT_CONTENTS or bool(names & {"content-length", "transfer-encoding"})


class WholeAnswers(HTTPAdapter):
    """An adapter for `requests` that fails if the head of an answer was truncated."""

    def __init__(self) -> None:
        super().__init__(pool_maxsize=_CONNECTIONS)

    def build_response(self, req: Any, resp: Any) -> requests.Response:
        """Returns the answer; raises `requests.ConnectionError` if it was truncated."""
        if not is_whole(resp.status, resp.headers):
            resp.close()
            raise requests.ConnectionError("the answer ended within its head", request=req)
        return super().build_response(req, resp)


class _Session(requests.Session):
    """A session that reports no redirects, whose bodies it would read whole."""

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002
        return None


class HttpStore(ReadOnlyStore):
    """A directory that an HTTP server serves unchanged; see `Store`.

    Certificates are verified. A name and password come from `~/.netrc`, as for other tools. A
    server redirects to itself, or from `https` to `https`: see `_may_lead`.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._sessions = threading.local()

    def stat(self, path: str) -> StoredFile:
        with self._asked("HEAD", path) as response:
            length = response.headers.get("Content-Length", "")
            if not length.isdecimal():
                raise self._no_answer(path, "no size came")
            date = email.utils.parsedate_tz(response.headers.get("Last-Modified", ""))
            return StoredFile(path, int(length), email.utils.mktime_tz(date) if date else 0.0)

    def list(self, folder: str) -> Iterator[StoredFile]:  # noqa: ARG002
        raise StoreError(
            f"{self.url} cannot be listed: HTTP has no such thing.",
            fix="do this where the directory is that is served there",
        )

    def read(self, path: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        if end is not None and end <= begin:
            return
        headers = {"Range": f"bytes={begin}-{'' if end is None else end - 1}"}
        with self._asked("GET", path, headers if begin or end is not None else {}) as response:
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # from its end on there is nothing
            skip = begin
            if response.status_code == HTTPStatus.PARTIAL_CONTENT:
                part = response.headers.get("Content-Range")
                if part is None:
                    raise self._no_answer(path, "it did not come whole")
                if not part.startswith(f"bytes {begin}-"):
                    raise self._odd(path, "it gave another part than was asked for")
                skip = 0
            left = None if end is None else end - begin
            for block in self._blocks(path, response):
                data = block[skip:]
                skip -= len(block) - len(data)
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                if data:
                    yield data
                if left == 0:
                    return

    def state(self, path: str, most: int) -> tuple[bytes, str]:
        # No cache on the way may answer with an outdated file.
        with self._asked("GET", path, {"Cache-Control": "no-cache"}) as response:
            data = b""
            for block in self._blocks(path, response):
                data += block
                if len(data) > most:
                    raise too_large(path, most)
            return data, response.headers.get("ETag", "")

    def _asked(
        self, method: str, path: str, headers: dict[str, str] | None = None
    ) -> requests.Response:
        # The bytes of the file, without compression by the server.
        wanted = {"Accept-Encoding": "identity", **(headers or {})}
        response = self._answer(method, path, wanted)
        status = response.status_code
        if status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT) or (
            status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and "Range" in wanted
        ):
            return response
        response.close()
        if status in _MISSING:
            raise no_file(self.url, path)
        if status in _PASSING:
            raise self._no_answer(path, f"HTTP {status}")
        raise StoreError(
            f"{self.url} does not give {path}: HTTP {status}.",
            fix="correct the address; a name and password go into ~/.netrc",
        )

    def _answer(self, method: str, path: str, headers: dict[str, str]) -> requests.Response:
        """Returns the answer, after safe redirects; `requests` would follow all of them."""
        url = f"{self._url}/{urllib.parse.quote(path)}"
        for _ in range(_MOST_REDIRECTS + 1):
            response = self._sent(method, path, url, headers)
            if not response.is_redirect:
                return response
            response.close()
            target = _joined(url, response.headers["Location"])
            if not _may_lead(url, target):
                raise self._odd(
                    path, f"a redirect to {clipped(parts_without_secrets(target))}",
                    "if you trust that server, give the address of its store",
                )  # fmt: skip
            url = target
        raise self._odd(path, f"more than {_MOST_REDIRECTS} redirects")

    def _sent(self, method: str, path: str, url: str, headers: dict[str, str]) -> requests.Response:
        try:
            return self._session.request(
                method, url, headers=headers, stream=True, timeout=_TIMEOUT, allow_redirects=False
            )
        except requests.exceptions.SSLError as error:
            raise StoreError(
                f"The certificate of {self.url} is not to be trusted.",
                fix="correct the address, or the certificates of this machine",
            ) from error
        except requests.RequestException as error:
            raise self._no_answer(path, type(error).__name__) from error

    def _blocks(self, path: str, response: requests.Response) -> Iterator[bytes]:
        length = response.headers.get("Content-Length", "")
        received = 0
        try:
            for block in response.raw.stream(BLOCK, decode_content=False):
                received += len(block)
                yield block
        except (urllib3.exceptions.HTTPError, requests.RequestException, OSError) as error:
            raise self._no_answer(path, type(error).__name__) from error
        if length.isdecimal() and received < int(length):
            raise self._no_answer(path, f"{received:,} of {length} bytes came")

    @property
    def _session(self) -> requests.Session:
        """One for each thread: sessions are not thread-safe."""
        found: requests.Session | None = getattr(self._sessions, "one", None)
        if found is None:
            found = self._sessions.one = _Session()
            for scheme in ("https://", "http://"):
                found.mount(scheme, WholeAnswers())
        return found

    def _no_answer(self, path: str, found: str) -> StoreUnavailableError:
        return no_answer(self.url, path, found, "the network and the server")

    def _odd(self, path: str, found: str, fix: str = "use a server for static files") -> StoreError:
        return StoreError(
            f"{self.url} cannot be used as a store.", f"It was about {path}: {found}", fix=fix
        )


def _joined(url: str, location: str) -> str:
    try:
        return urllib.parse.urljoin(url, location)
    except ValueError:
        return location


def _may_lead(here: str, there: str) -> bool:
    """Returns whether a redirect may be followed.

    It must stay on the same server, or lead from one certified server to another, as on hubs that
    keep large files elsewhere. So no store can reach servers without a certificate in this
    machine's own network, and an encrypted transfer is never continued unencrypted.
    """
    try:
        one, other = map(urllib.parse.urlsplit, (here, there))
        ports = one.port or _PORTS[one.scheme], other.port or _PORTS[other.scheme]
    except (ValueError, KeyError):
        return False
    if "@" in other.netloc:
        return False
    if (one.scheme, other.scheme) == ("https", "https"):
        return True
    if one.hostname != other.hostname:
        return False
    is_upgrade = (one.scheme, other.scheme) == ("http", "https") and ports == (80, 443)
    return is_upgrade or (one.scheme == other.scheme and ports[0] == ports[1])
