"""A real HTTP server on loopback that misbehaves as told."""

import contextlib
import hashlib
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Page:
    """What the server has at a path, and how it gives it.

    Attributes:
      body: The bytes.
      drops: Bytes of an answer after which the connection is cut, for each answer in turn.
      fails: Statuses of the first answers.
      retry_after: The header `Retry-After` of those.
      ranges: Whether parts can be asked for.
      tagged: Whether there is an ETag.
      length: Whether the length is told.
      headers: More headers.
      redirect: Where it sends to.
      pause: Seconds between pieces of 1,000 bytes.
    """

    body: bytes = b""
    drops: list[int] = field(default_factory=list)
    fails: list[int] = field(default_factory=list)
    retry_after: str = "0"
    ranges: bool = True
    tagged: bool = True
    length: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    redirect: str | None = None
    pause: float = 0.0

    @property
    def tag(self):
        return '"' + hashlib.md5(self.body).hexdigest() + '"'


class Server:
    """The server's pages, and what was asked of it."""

    def __init__(self, address):
        self.address = address
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, str | None]] = []

    def url(self, path):
        return self.address + path

    def put(self, path, body=b"", **how):
        self.pages[path] = Page(body, **how)
        return self.url(path)

    @property
    def count(self):
        """How often each path was asked for."""
        return Counter(path for path, _ in self.asked)


@contextlib.contextmanager
def serving():
    """Gives a running server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_GET(self):
            path = self.path.partition("?")[0]
            server.asked.append((path, self.headers.get("Range")))
            page = server.pages.get(path)
            if page is None:
                self.answer(404, b"not here")
            elif page.fails:
                self.answer(page.fails.pop(0), b"later", {"Retry-After": page.retry_after})
            elif page.redirect:
                self.answer(302, b"", {"Location": page.redirect})
            else:
                self.give(page)

        def answer(self, status, body, headers=None):
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def give(self, page):
            begin = 0
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if asked and page.ranges and self.headers.get("If-Range", page.tag) == page.tag:
                begin = int(asked[1])
                if begin >= len(page.body):
                    self.answer(416, b"", {"Content-Range": f"bytes */{len(page.body)}"})
                    return
            body = page.body[begin:]
            self.send_response(206 if begin else 200)
            if begin:
                end = len(page.body) - 1
                self.send_header("Content-Range", f"bytes {begin}-{end}/{len(page.body)}")
            if page.length:
                self.send_header("Content-Length", str(len(body)))
            else:
                self.send_header("Connection", "close")
            if page.tagged:
                self.send_header("ETag", page.tag)
            for name, value in page.headers.items():
                self.send_header(name, value)
            self.end_headers()
            cut = page.drops.pop(0) if page.drops else None
            piece = 1000 if page.pause else 1 << 16
            for first in range(0, len(body[:cut]), piece):
                with contextlib.suppress(OSError):
                    self.wfile.write(body[:cut][first : first + piece])
                time.sleep(page.pause)
            if cut is not None or not page.length:
                self.close_connection = True

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.daemon_threads = True
        server = Server(f"http://127.0.0.1:{httpd.server_port}")
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        httpd.shutdown()
        thread.join()
