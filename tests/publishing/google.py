"""TensorFlow's own gs://, which knows Google's addresses only, led to a server on loopback.

It asks the proxy that the environment names for a way to those hosts; here that is one that answers
for them, with a certificate that the environment says is to be trusted.
"""

import contextlib
import datetime
import os
import socket
import ssl
import threading
import urllib.parse

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_HOSTS = ("storage.googleapis.com", "www.googleapis.com")


@contextlib.contextmanager
def leading_to(server, directory):
    """Gives the environment in which TensorFlow reads gs:// from a server at an http:// address."""
    certify(directory / "cert.pem", *_HOSTS)
    parts = urllib.parse.urlsplit(server)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        threading.Thread(
            target=_serve, args=(listening, parts, directory / "cert.pem"), daemon=True
        ).start()
        proxy = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield {
            **{name: value for name, value in os.environ.items() if name.lower() != "no_proxy"},
            "HTTPS_PROXY": proxy, "https_proxy": proxy,
            "CURL_CA_BUNDLE": str(directory / "cert.pem"),
            "NO_GCE_CHECK": "true",
            # What it saw once may have changed.
            "GCS_STAT_CACHE_MAX_AGE": "0", "GCS_MATCHING_PATHS_CACHE_MAX_AGE": "0",
            "GCS_READ_CACHE_MAX_SIZE_MB": "0",
        }  # fmt: skip


def certify(path, *hosts):
    """Writes a key and a certificate for some hosts, which nobody trusts yet."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))


def _serve(listening, server, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["http/1.1"])
    with contextlib.suppress(OSError):
        while True:
            client, _ = listening.accept()
            threading.Thread(
                target=_pass_on, args=(client, context, server), daemon=True
            ).start()  # fmt: skip


def _pass_on(client, context, server):
    head = b""
    with contextlib.suppress(OSError), client:
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        host = f"Host: {server.netloc}".encode()
        with (
            context.wrap_socket(client, server_side=True) as inner,
            socket.create_connection((server.hostname, server.port)) as upstream,
        ):
            there = threading.Thread(target=_copy, args=(inner, upstream, host), daemon=True)
            there.start()
            _copy(upstream, inner, None)


def _copy(source, target, host):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            # It takes files by the host's name, which is not its own.
            target.sendall(data.replace(b"Host: storage.googleapis.com", host) if host else data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
