"""A real browser: Chromium without a window, driven by Playwright."""

import contextlib
import fcntl
import functools
import http.server
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import programs

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """Returns the program; in CI it is installed if need be."""
    given = os.environ.get("CHROMIUM")
    found = given or next(filter(None, map(shutil.which, _NAMES)), None)
    can_install = os.environ.get("CI") and shutil.which("apt-get") and os.geteuid() == 0
    if found is None and can_install:
        with (Path(tempfile.gettempdir()) / "chromium.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = shutil.which("chromium") or _installed()
    if found is None:
        programs.leave_out("Chromium")
    return found


def _installed() -> str | None:
    quiet = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "capture_output": True}
    subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)
    done = subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium",
         "fonts-dejavu-core"], check=False, text=True, **quiet,
    )  # fmt: skip
    return None if done.returncode else shutil.which("chromium")


@contextlib.contextmanager
def browser() -> Iterator:
    """Yields a browser."""
    program = chromium()
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # Sounds play without a click; root has no sandbox.
        started = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"],
        )
        yield started
        started.close()


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[str]:
    """Yields the address at which a directory is served, with the types of its files."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
