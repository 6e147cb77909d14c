"""Each kind of store does what the contract says, on a real server; addresses, and their faults."""

import contextlib
import hashlib
import http.server
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from functools import partial

import boto3
import pytest

from my_datasets.errors import DiskFullError, NotInStoreError, StoreError, StoreUnavailableError
from my_datasets.storage.backends import open_store
from my_datasets.storage.backends.fsspec_store import OtherStore
from my_datasets.storage.backends.http import HttpStore, _may_lead
from my_datasets.storage.backends.local import LocalStore
from my_datasets.testing.store_contract import ReadingContract, StoreContract
from tests.publishing.google import certify
from tests.publishing.web import serving


class TestEachStore(StoreContract):
    """A directory, a bucket of moto's S3 server, a bucket of fake-gcs-server."""

    @pytest.fixture
    def store(self, store):
        return store


class TestS3InParts(StoreContract):
    @pytest.fixture
    def store(self, s3_bucket, tmp_path):
        from my_datasets.storage.backends.s3 import S3Store

        return S3Store("releases", f"in_parts/{tmp_path.name}", part=5 << 20)


class TestDirectoryWithoutHardLinks(StoreContract):
    @pytest.fixture
    def store(self, tmp_path, monkeypatch):
        def refused(*_):
            raise PermissionError(1, "no hard links here")

        monkeypatch.setattr("os.link", refused)
        return LocalStore(tmp_path / "store")


class TestDirectoryThatIsALink(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        (tmp_path / "disk").mkdir()
        (tmp_path / "store").symlink_to(tmp_path / "disk")
        return LocalStore(tmp_path / "store")


class TestHttp(ReadingContract):
    @pytest.fixture(params=[True, False], ids=["ranges", "no_ranges"])
    def held(self, request, tmp_path):
        def put(path, data):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data)

        with serving(tmp_path, ranges=request.param) as (url, _):
            yield open_store(url), put

    def test_nothing_can_be_written(self, held):
        store, _ = held
        assert not store.is_writable
        for act in (
            lambda: store.create("a", b"", hashlib.sha256().hexdigest()),
            lambda: store.replace("a", b"", None),
            lambda: store.delete("a"),
            lambda: store.move("a", "b", []),
        ):
            with pytest.raises(StoreError, match="can only be read"):
                act()
        with pytest.raises(StoreError, match="cannot be listed"):
            list(store.list(""))


class TestOthers(ReadingContract):
    """What fsspec reads: here its own files in memory, and those of a directory."""

    @pytest.fixture(params=["memory", "local"])
    def held(self, request, tmp_path):
        import fsspec

        root = f"{request.param}://{tmp_path}"
        system = fsspec.filesystem(request.param)

        def put(path, data):
            system.makedirs(f"{tmp_path}/{path}".rpartition("/")[0], exist_ok=True)
            system.pipe_file(f"{tmp_path}/{path}", data)

        return OtherStore(root), put

    def test_nothing_can_be_written(self, held):
        store, put = held
        put("folder/a", b"1")
        assert [(one.path, one.bytes) for one in store.list("folder")] == [("folder/a", 1)]
        for act in (
            lambda: store.create("a", b"", hashlib.sha256().hexdigest()),
            lambda: store.replace("a", b"", None),
            lambda: store.delete("a"),
            lambda: store.move("a", "b", []),
        ):
            with pytest.raises(StoreError, match="can only be read"):
                act()


def test_others_are_known_by_their_scheme(tmp_path):
    assert isinstance(open_store("memory://folder"), OtherStore)
    with pytest.raises(StoreError, match="fsspec says") as caught:
        open_store("abfs://container/folder")
    assert "install the fsspec backend" in str(caught.value)


def test_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_store("folder").url == str(tmp_path / "folder")
    assert open_store("file:///a%20b").url == "/a b"
    assert isinstance(open_store("http://host/x/"), HttpStore)
    assert open_store("http://host/x/").url == "http://host/x"
    store = open_store(tmp_path)
    assert open_store(store) is store
    for wrong in ("nothing://host/x", "s3://", "http:///x", "http://[x/y"):
        with pytest.raises(StoreError, match="is no address of a store"):
            open_store(wrong)


@pytest.mark.parametrize(
    "address",
    ["s3://KEY:hunter2@bucket/x", "https://me:hunter2@host/x", "https://host/x?token=hunter2",
     "gs://anonymous:hunter2@bucket", "ftp://me:hunter2@host", "http://me:hunter2@[host"],
)  # fmt: skip
def test_credentials_in_addresses_are_refused_and_not_shown(address):
    with pytest.raises(StoreError) as caught:
        open_store(address)
    assert "hunter2" not in str(caught.value)


def test_a_server_that_does_not_answer():
    for url in ("http://127.0.0.1:9/x", "http://no-such-host.invalid/x"):
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            open_store(url).stat("a")


def test_a_server_that_answers_otherwise(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")

    def answer(handler, path):
        status = {"later": 503, "login": 401, "other_part": 206, "short": 200}.get(path)
        if status is None:
            return False
        handler.send_response(status)
        if path == "other_part":
            handler.send_header("Content-Range", "bytes 0-9/10")
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        handler.wfile.write(b"01234" if path == "short" else b"0123456789")
        handler.close_connection = True
        return True

    with serving(tmp_path, answer=answer) as (url, _):
        store = open_store(url)
        with pytest.raises(StoreUnavailableError, match="HTTP 503"):
            b"".join(store.read("later"))
        with pytest.raises(StoreError, match="HTTP 401"):
            b"".join(store.read("login"))
        with pytest.raises(StoreError, match="another part than was asked for"):
            b"".join(store.read("other_part", 5))
        came = []
        with pytest.raises(StoreUnavailableError):
            came.extend(store.read("short"))
        assert b"".join(came) in (b"01234", b"")


def test_what_everybody_may_read(s3_bucket, gcs_bucket, monkeypatch):
    stores = [open_store("s3://releases/open"), open_store(f"{gcs_bucket}/open")]
    for store in stores:
        store.create("a", b"1", hashlib.sha256(b"1").hexdigest())
    boto3.client("s3").put_object_acl(Bucket="releases", Key="open/a", ACL="public-read")
    stores[0].create("b", b"1", hashlib.sha256(b"1").hexdigest())
    with pytest.raises(StoreError, match="refuses"):
        b"".join(open_store("s3://anonymous@releases/open").read("b"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for url in ("s3://anonymous@releases/open", "gs://anonymous@releases/open"):
        store = open_store(url)
        assert b"".join(store.read("a")) == b"1"
        assert "@" not in store.url
    with pytest.raises(StoreError, match="There are no credentials"):
        open_store("s3://releases/open").stat("a")


def test_certificates_are_verified(tmp_path, monkeypatch):
    certify(tmp_path / "cert.pem", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem")
    (tmp_path / "file").write_bytes(b"1")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        store = open_store(f"https://localhost:{server.server_port}")
        with pytest.raises(StoreError, match=r"certificate of .* is not to be trusted") as caught:
            store.stat("file")
        assert not isinstance(caught.value, StoreUnavailableError)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "cert.pem"))
        assert store.stat("file").bytes == 1
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("module", "ours", "requirement"),
    [("boto3", "storage.backends.s3", "boto3>="),
     ("google.cloud.storage", "storage.backends.gcs", "google-cloud-"),
     ("cryptography", "publishing.model.signing", "cryptography[ssh]>=")],
)  # fmt: skip
def test_an_extra_that_is_not_installed_is_named(module, ours, requirement):
    script = f"import sys; sys.modules['{module}'] = None; import my_datasets.{ours}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "MissingDependencyError" in done.stderr
    assert f"pip install '{requirement}" in done.stderr


def test_a_bucket_that_is_not_there(s3_bucket, gcs_bucket):
    for url in ("s3://no-such-bucket-here/x", "gs://anonymous@no-such-bucket-here/x"):
        with pytest.raises(StoreError, match="There is no bucket") as caught:
            open_store(url).create("a", b"1", hashlib.sha256(b"1").hexdigest())
        assert not isinstance(caught.value, NotInStoreError)


def test_a_full_disk(tmpfs):
    store = LocalStore(tmpfs("1m") / "store")
    data = bytes(2 << 20)
    with pytest.raises(DiskFullError, match="is full"):
        store.create("a", data, hashlib.sha256(data).hexdigest())
    assert list(store.list("")) == []
    store.create("a", b"1", hashlib.sha256(b"1").hexdigest())


LINKED = {
    "create": lambda store, of: store.create("linked/a/new", b"1", of(b"1")),
    "replace": lambda store, of: store.replace("linked/mine", b"1", of(b"mine")),
    "replace what is not there": lambda store, of: store.replace("linked/a/new", b"1", None),
    "move into": lambda store, of: store.move("folder", "linked/a", []),
    "move onto": lambda store, of: store.move("folder", "linked", []),
    "move out of": lambda store, of: store.move("linked", "folder", []),
    "delete": lambda store, of: store.delete("linked/mine"),
}


@pytest.mark.parametrize("how", LINKED)
@pytest.mark.parametrize("link", ["linked", "my-datasets/half-written"])
def test_links_that_lead_out_of_a_directory_are_not_followed(tmp_path, how, link):
    def of(data):
        return hashlib.sha256(data).hexdigest()

    outside, root = tmp_path / "outside", tmp_path / "store"
    outside.mkdir()
    (outside / "mine").write_bytes(b"mine")
    store = LocalStore(root)
    store.create("folder/file", b"1", of(b"1"))
    if link == "linked":
        (root / link).symlink_to(outside)
    else:
        shutil.rmtree(root / link, ignore_errors=True)
        (root / "my-datasets").mkdir(exist_ok=True)
        (root / link).symlink_to(outside)
        store.path_of("linked").mkdir()
        store.path_of("linked/mine").write_bytes(b"mine")
        if how not in ("create", "replace", "replace what is not there"):
            return
    with pytest.raises(StoreError, match="a link that leads out"):
        LINKED[how](store, of)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"mine": b"mine"}
    assert store.path_of("folder/file").read_bytes() == b"1"


def test_nobody_waits_for_a_named_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    store = LocalStore(tmp_path)
    signal.alarm(20)  # a reader that waits, waits for ever
    try:
        for name in ("pipe", "device"):
            with pytest.raises(StoreError, match="not a regular file"):
                store.state(name, 10)
            with pytest.raises(StoreError, match="not a regular file"):
                list(store.read(name))
            with pytest.raises(StoreError, match="not a regular file"):
                store.replace(name, b"new", None)
            with pytest.raises(NotInStoreError):
                store.stat(name)
            with pytest.raises(StoreError):
                store.create("target", tmp_path / name, "0" * 64)
        assert list(store.list("")) == []
    finally:
        signal.alarm(0)


def test_what_must_not_be_written(tmp_path):
    (tmp_path / "store").write_text("a file")
    with pytest.raises(StoreError):
        LocalStore(tmp_path / "store").create("a", b"1", hashlib.sha256(b"1").hexdigest())


def redirecting(to, body=b""):
    """What answers each request by a redirect, with a body that never ends if one is given."""

    def answer(handler, path):
        if not path.startswith("old/"):
            return False
        handler.send_response(302)
        handler.send_header("Location", to(handler, path))
        handler.send_header("Content-Length", str(1 << 50) if body else "0")
        handler.send_header("Connection", "close")
        handler.end_headers()
        with contextlib.suppress(OSError):
            while body:
                handler.wfile.write(body)
        handler.close_connection = True
        return True

    return answer


def test_a_server_without_a_certificate_redirects_to_itself_only(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    with serving(tmp_path) as (elsewhere, asked):
        for to in (
            elsewhere,
            elsewhere.replace("http:", "https:"),
            "ftp://127.0.0.1",
            "//[",
            "http://127.0.0.1:x",
        ):
            with serving(tmp_path, answer=redirecting(lambda _, path, to=to: f"{to}/file")) as (
                url,
                _,
            ):
                store = open_store(f"{url}/old")
                for ask in (
                    store.stat,
                    lambda one, store=store: store.state(one, 100),
                    lambda one, store=store: list(store.read(one)),
                ):
                    with pytest.raises(StoreError, match="a redirect to"):
                        ask("file")
    assert asked == []
    with serving(
        tmp_path, answer=redirecting(lambda _, path: path.replace("old", ""), b"x" * 4096)
    ) as (url, _):
        assert open_store(f"{url}/old").state("file", 100)[0] == b"0123456789"
    endless = redirecting(lambda _, path: f"/{path}")
    with (
        serving(tmp_path, answer=endless) as (url, asked),
        pytest.raises(StoreError, match="more than 5 redirects"),
    ):
        open_store(f"{url}/old").stat("file")
    assert len(asked) == 6


@pytest.mark.parametrize(("here", "there", "may_lead"), [
    ("http://a.org/x", "http://a.org/y", True),
    ("http://a.org/x", "https://a.org/x", True),
    ("http://a.org/x", "http://A.org:80/x", True),
    ("https://a.org/x", "http://a.org/x", False),
    ("https://a.org/x", "http://a.org:443/x", False),
    ("https://a.org/x", "https://b.org/x", True),
    ("https://a.org/x", "https://b.org:8443/x", True),
    ("http://a.org/x", "https://b.org/x", False),
    ("https://a.org/x", "https://a.org@b.org/x", False),
    ("https://a.org/x", "https://b.org@a.org/x", False),
    ("https://a.org/x", "http://b.org/x", False),
    ("http://a.org/x", "http://a.org:6379/x", False),
    ("http://a.org:8080/x", "https://a.org/x", False),
    ("http://a.org/x", "file:///etc/passwd", False),
    ("http://a.org/x", "http://a.org:99999/x", False),
])  # fmt: skip
def test_where_a_redirect_may_lead(here, there, may_lead):
    assert _may_lead(here, there) is may_lead
