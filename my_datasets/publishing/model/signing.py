"""Signatures of releases, with OpenSSH's Ed25519 keys.

Signatures have OpenSSH's format (PROTOCOL.sshsig), so `ssh-keygen -Y verify` verifies them too.
"""

import base64
import contextlib
import hashlib
from collections.abc import Iterable
from pathlib import Path

from my_datasets.dependencies import missing_dependency
from my_datasets.errors import SignatureError
from my_datasets.publishing.model.signed_json import KEY_PURPOSE, KeyChange, Signature

try:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
except ModuleNotFoundError as missing:
    raise missing_dependency("cryptography", needed_for="signed releases") from missing

_KIND = "ssh-ed25519"
_HASH = "sha512"


class Signer:
    """A private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._fingerprint = _fingerprint(key.public_key())

    @classmethod
    def read(cls, path: Path, password: bytes | None = None) -> "Signer":
        """Reads a key in OpenSSH's format or PEM.

        Args:
          path: The file, such as `~/.ssh/id_ed25519`.
          password: The password of an encrypted key.

        Raises:
          SignatureError: It is not an Ed25519 key, or the password is missing or wrong.
        """
        try:
            data = path.expanduser().read_bytes()
            is_openssh = b"BEGIN OPENSSH" in data
            load = serialization.load_ssh_private_key if is_openssh else (
                serialization.load_pem_private_key
            )  # fmt: skip
            key = load(data, password)
        except OSError as error:
            raise _unreadable(path, error.strerror or "it cannot be read") from error
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm) as error:
            if "bcrypt" in str(error):
                raise missing_dependency("cryptography", needed_for="encrypted keys") from error
            if "assword" in str(error) and not password:
                raise _unreadable(path, "it is encrypted", code="encrypted") from error
            raise _unreadable(path, "it is not a private key, or the password is wrong") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise _unreadable(path, f"it is of the type {type(key).__name__}")
        return cls(key)

    @property
    def fingerprint(self) -> str:
        """The fingerprint, as `ssh-keygen -l` shows it."""
        return self._fingerprint

    @property
    def public(self) -> "TrustedKeys":
        """A set of trusted keys with this key only."""
        return TrustedKeys([self._key.public_key()])

    def sign(self, purpose: str, message: bytes) -> Signature:
        """Signs a message for one purpose."""
        value = self._key.sign(_signed(purpose, message))
        return Signature(self._fingerprint, base64.b64encode(value).decode())


class TrustedKeys:
    """A set of trusted public keys."""

    def __init__(
        self, keys: Iterable[Ed25519PublicKey], revoked: frozenset[str] = frozenset()
    ) -> None:
        self._keys = {_fingerprint(key): key for key in keys}
        self.revoked = revoked

    @classmethod
    def read(cls, path: Path) -> "TrustedKeys":
        """Reads a file with a line `ssh-ed25519 KEY COMMENT` per key.

        This is the format of `~/.ssh/authorized_keys` and `*.pub`; a name may come first, as in
        OpenSSH's `allowed_signers`. Lines that begin with `#` are skipped.

        Raises:
          SignatureError: It cannot be read, has no key, or has an invalid line.
        """
        try:
            lines = path.expanduser().read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise _unreadable(path, str(error)) from error
        keys = [
            _public(line, f"{path}, line {number}")
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if not keys:
            raise _unreadable(path, "it has no key")
        return cls(keys)

    @classmethod
    def of(cls, lines: Iterable[str], place: str) -> "TrustedKeys":
        """Parses lines `ssh-ed25519 KEY COMMENT`; `place` says where they are, for messages.

        Raises:
          SignatureError: A line is invalid.
        """
        return cls(_public(line, place) for line in lines)

    @property
    def lines(self) -> list[str]:
        """The keys, as `ssh-ed25519 KEY`."""
        return [_line(key) for _, key in sorted(self._keys.items())]

    def after(self, changes: tuple[KeyChange, ...], store: str) -> "TrustedKeys":
        """Returns the trusted keys after changes of a store's keys, oldest first.

        A change counts if a key signed it that was trusted just before. A revoked key is never
        trusted again.
        """
        keys, revoked = dict(self._keys), set[str]()
        for number, one in enumerate(changes):
            try:
                TrustedKeys(keys.values()).check(
                    KEY_PURPOSE, one.message(store, number), (one.signature,), "A change of keys"
                )
                key = _public(one.key, "a change of keys")
            except SignatureError:
                continue
            name = _fingerprint(key)
            if one.action == "revoke":
                revoked.add(name)
                keys.pop(name, None)
            elif name not in revoked:
                keys[name] = key
        return TrustedKeys(keys.values(), frozenset(revoked))

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprints of the keys, sorted."""
        return sorted(self._keys)

    def check(
        self, purpose: str, message: bytes, signatures: tuple[Signature, ...], what: str
    ) -> str:
        """Returns the fingerprint of a trusted key that signed a message for a purpose.

        Raises:
          SignatureError: None did; the message names `what` was signed.
        """
        for one in signatures:
            key = self._keys.get(one.key)
            if key is not None:
                with contextlib.suppress(exceptions.InvalidSignature, ValueError):
                    key.verify(
                        base64.b64decode(one.value, validate=True), _signed(purpose, message)
                    )
                    return one.key
        by = ", ".join(one.key for one in signatures) or "no key"
        is_known = any(one.key in self._keys for one in signatures)
        raise SignatureError(
            f"{what} has an invalid signature: it was altered."
            if is_known
            else f"{what} is not signed by a trusted key.",
            f"Expected: a signature by {' or '.join(self.fingerprints)}",
            f"Found: signed by {by}",
            fix="ask the publisher; add a new publisher's key to the file of trusted keys "
            "after comparing its fingerprint with them",
        )


def _public(line: str, place: str) -> Ed25519PublicKey:
    fields = line.split()
    with contextlib.suppress(ValueError, IndexError, exceptions.UnsupportedAlgorithm):
        begin = fields.index(_KIND)
        text = " ".join(fields[begin : begin + 2])
        key = serialization.load_ssh_public_key(text.encode())
        if isinstance(key, Ed25519PublicKey):
            return key
    raise SignatureError(
        f"{place} is not an Ed25519 key in OpenSSH's format.",
        f"Expected: {_KIND} KEY COMMENT",
        fix="make a pair with ssh-keygen -t ed25519, and use the line in its .pub file",
    )


def _line(key: Ed25519PublicKey) -> str:
    form = serialization.PublicFormat.OpenSSH
    return key.public_bytes(serialization.Encoding.OpenSSH, form).decode("ascii")


def _fingerprint(key: Ed25519PublicKey) -> str:
    digest = hashlib.sha256(base64.b64decode(_line(key).split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _signed(purpose: str, message: bytes) -> bytes:
    """Returns the bytes that the key signs (OpenSSH, PROTOCOL.sshsig, section 3)."""
    fields = (purpose.encode(), b"", _HASH.encode(), hashlib.sha512(message).digest())
    return b"SSHSIG" + b"".join(len(one).to_bytes(4, "big") + one for one in fields)


def _unreadable(path: Path, found: str, code: str = "") -> SignatureError:
    return SignatureError(
        f"{path} cannot be used as a key.",
        f"Found: {found}",
        fix="make a pair of keys with ssh-keygen -t ed25519: one to sign with, a .pub to trust",
        code=code,
    )
