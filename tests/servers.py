"""Real servers on loopback, for as long as a test needs them."""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from my_datasets.building.engines.beam.tied_process import command_for
from tests import programs

Put = Callable[[str, bytes], object]

# Of those that were tried, the one that both reads and writes as Google's clients expect.
GCS_SERVER = "github.com/fsouza/fake-gcs-server@v1.56.1"
_LONGEST_START_SECONDS = 30


@contextlib.contextmanager
def s3(bucket: str, host: str = "127.0.0.1") -> Iterator[tuple[str, Put]]:
    """Yields the URL of a bucket in moto's S3 server, and what writes to it."""
    import boto3
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    # Moto compares the ETag of a conditional write, and writes later: requests at the same time
    # would both succeed, which S3 excludes.
    put_object, alone = S3Response.put_object, threading.Lock()

    def put_alone(response: S3Response) -> Any:
        with alone:
            return put_object(response)

    server = ThreadedMotoServer(ip_address=host, port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(S3Response, "put_object", put_alone)
            patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
            patch.setenv("AWS_ACCESS_KEY_ID", "test")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            client = boto3.client("s3")
            client.create_bucket(Bucket=bucket)
            yield (
                f"s3://{bucket}",
                lambda key, body: client.put_object(Bucket=bucket, Key=key, Body=body),
            )
    finally:
        server.stop()


@contextlib.contextmanager
def gcs(bucket: str) -> Iterator[tuple[str, Put]]:
    """Yields the URL of a bucket in fake-gcs-server, and what writes to it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    host, _, port = address.partition(":")
    server = subprocess.Popen(
        command_for([
            str(gcs_server()), "-scheme", "http", "-host", host, "-port", port,
            "-public-host", address, "-backend", "memory", "-log-level", "error",
        ]),
        stdout=subprocess.DEVNULL,
    )  # fmt: skip

    def post(path: str, body: bytes, kind: str) -> None:
        request = urllib.request.Request(
            f"http://{address}{path}", data=body, headers={"Content-Type": kind}, method="POST"
        )
        with urllib.request.urlopen(request) as response:
            response.read()

    def put(key: str, body: bytes) -> None:
        post(
            f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={key}",
            body,
            "application/octet-stream",
        )

    try:
        _wait_for(host, int(port))
        post("/storage/v1/b?project=test", json.dumps({"name": bucket}).encode(), "text/json")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://{address}")  # pyarrow's
            patch.setenv("STORAGE_EMULATOR_HOST", f"http://{address}")  # Google's own
            yield f"gs://anonymous@{bucket}", put
    finally:
        server.terminate()
        server.wait()


def gcs_server() -> Path:
    """Returns the program, which is built once for all tests of this machine."""
    go = programs.require("go", "Go, which builds a GCS server")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "my_datasets_tests" / GCS_SERVER.rpartition("/")[2]
    program = folder / "fake-gcs-server"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            built = subprocess.run(
                [go, "install", GCS_SERVER],
                env={**os.environ, "GOBIN": str(folder)}, capture_output=True, text=True,
            )  # fmt: skip
            if built.returncode:
                pytest.fail(f"{GCS_SERVER} cannot be built: {built.stderr}")
    return program


def _wait_for(host: str, port: int) -> None:
    end = time.monotonic() + _LONGEST_START_SECONDS
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
