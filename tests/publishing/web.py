"""A static HTTP server on loopback, with ranges, as any web server gives files away."""

import contextlib
import http.server
import re
import threading
import urllib.parse
from pathlib import Path


@contextlib.contextmanager
def serving(directory, *, ranges=True, answer=None):
    """Gives the address at which a directory is served, and each request as it came.

    Args:
      directory: The directory.
      ranges: Whether parts can be asked for.
      answer: Given a handler and a path: answers in place of the server, or returns False.
    """
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_HEAD(self):
            self.give(body=False)

        def do_GET(self):
            self.give(body=True)

        def give(self, body):
            path = urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/")
            asked.append((self.command, path, self.headers.get("Range")))
            if answer is not None and answer(self, path):
                return
            full = Path(directory) / path
            if not full.is_file():
                self.send_error(404)
                return
            size = full.stat().st_size
            begin, end = 0, size
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if wanted and ranges:
                begin = int(wanted[1])
                end = min(int(wanted[2]) + 1, size) if wanted[2] else size
                if begin >= size:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{size}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(end - begin))
            self.send_header("Last-Modified", self.date_time_string(full.stat().st_mtime))
            self.end_headers()
            if body:
                with full.open("rb") as file:
                    file.seek(begin)
                    with contextlib.suppress(OSError):
                        self.wfile.write(file.read(end - begin))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.daemon_threads = True
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}", asked
        finally:
            httpd.shutdown()
            thread.join()
