"""Signatures of releases, by Ed25519 keys as OpenSSH has them.

What is signed has the form of OpenSSH's own signatures (PROTOCOL.sshsig), so `ssh-keygen -Y verify`
finds the same as we do.
"""

import base64
import contextlib
import hashlib
from collections.abc import Iterable
from pathlib import Path

from my_datasets.dependencies import missing_dependency
from my_datasets.errors import SignatureError, explain
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
        """Takes the key."""
        self._key = key
        self._fingerprint = _fingerprint(key.public_key())

    @classmethod
    def read(cls, path: Path, password: bytes | None = None) -> "Signer":
        """Returns the key in a file: in OpenSSH's form, or PEM.

        Args:
          path: The file, such as `~/.ssh/id_ed25519`.
          password: If it is encrypted.

        Raises:
          SignatureError: It is no Ed25519 key, or is encrypted otherwise.
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
            raise _unreadable(path, "it is no such key, or the password is wrong") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise _unreadable(path, f"it is a {type(key).__name__}")
        return cls(key)

    @property
    def fingerprint(self) -> str:
        """Of the key, as `ssh-keygen -l` shows it."""
        return self._fingerprint

    @property
    def public(self) -> "TrustedKeys":
        """What trusts this key only."""
        return TrustedKeys([self._key.public_key()])

    def sign(self, purpose: str, message: bytes) -> Signature:
        """Returns the signature of a message, for one purpose only."""
        value = self._key.sign(_signed(purpose, message))
        return Signature(self._fingerprint, base64.b64encode(value).decode())


class TrustedKeys:
    """Public keys whose signatures count."""

    def __init__(
        self, keys: Iterable[Ed25519PublicKey], revoked: frozenset[str] = frozenset()
    ) -> None:
        """Takes the keys, and the fingerprints of those that counted before."""
        self._keys = {_fingerprint(key): key for key in keys}
        self.revoked = revoked

    @classmethod
    def read(cls, path: Path) -> "TrustedKeys":
        """Returns the keys in a file: a line `ssh-ed25519 KEY COMMENT` for each.

        That is the form of `~/.ssh/authorized_keys` and of `*.pub`; in that of OpenSSH's
        `allowed_signers` a name comes first. Lines that begin with `#` are skipped.

        Raises:
          SignatureError: It cannot be read, or has another line.
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
            raise _unreadable(path, "there is no key in it")
        return cls(keys)

    @classmethod
    def of(cls, lines: Iterable[str], place: str) -> "TrustedKeys":
        """Returns the keys in lines `ssh-ed25519 KEY COMMENT`.

        Args:
          lines: The lines.
          place: Where they are, for messages.

        Raises:
          SignatureError: A line is no such key.
        """
        return cls(_public(line, place) for line in lines)

    @property
    def lines(self) -> list[str]:
        """The keys, as `ssh-ed25519 KEY`."""
        return [_line(key) for _, key in sorted(self._keys.items())]

    def without(self, fingerprints: Iterable[str]) -> "TrustedKeys":
        """Returns these keys, without some."""
        left_out = set(fingerprints)
        return TrustedKeys(key for name, key in self._keys.items() if name not in left_out)

    def after(self, changes: tuple[KeyChange, ...], store: str) -> "TrustedKeys":
        """Returns whose signatures count after changes of a store's keys.

        A change counts if a key signed it that counted just before. A key that was revoked never
        counts again.

        Args:
          changes: The changes, oldest first.
          store: The store's id.
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
        """Those of the keys, as `ssh-keygen -l` shows them."""
        return sorted(self._keys)

    def check(
        self, purpose: str, message: bytes, signatures: tuple[Signature, ...], what: str
    ) -> str:
        """Returns the fingerprint of a trusted key that signed a message.

        Args:
          purpose: What for; a signature counts for one purpose only.
          message: What was signed.
          signatures: Some, of which one must be right.
          what: What this is about, for messages.

        Raises:
          SignatureError: None of them is right, and of a key that is trusted.
        """
        for one in signatures:
            key = self._keys.get(one.key)
            if key is not None:
                with contextlib.suppress(exceptions.InvalidSignature, ValueError):
                    key.verify(
                        base64.b64decode(one.value, validate=True), _signed(purpose, message)
                    )
                    return one.key
        by = ", ".join(one.key for one in signatures) or "nobody"
        is_known = any(one.key in self._keys for one in signatures)
        raise SignatureError(
            explain(
                f"{what} was altered: its signature is wrong."
                if is_known
                else f"{what} is not signed by anybody who is trusted.",
                f"Expected: a signature of {' or '.join(self.fingerprints)}",
                f"Found: signed by {by}",
                fix="ask who publishes there; a new publisher's key goes into the file of trusted "
                "keys, after you have compared its fingerprint with them",
            )
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
        explain(
            f"{place} is no Ed25519 key of OpenSSH's form.",
            f"Expected: {_KIND} KEY COMMENT",
            fix="ssh-keygen -t ed25519 makes a pair; the line is in its .pub file",
        )
    )


def _line(key: Ed25519PublicKey) -> str:
    form = serialization.PublicFormat.OpenSSH
    return key.public_bytes(serialization.Encoding.OpenSSH, form).decode("ascii")


def _fingerprint(key: Ed25519PublicKey) -> str:
    digest = hashlib.sha256(base64.b64decode(_line(key).split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _signed(purpose: str, message: bytes) -> bytes:
    """Returns what the key signs (openssh, PROTOCOL.sshsig, section 3)."""
    fields = (purpose.encode(), b"", _HASH.encode(), hashlib.sha512(message).digest())
    return b"SSHSIG" + b"".join(len(one).to_bytes(4, "big") + one for one in fields)


def _unreadable(path: Path, found: str, code: str = "") -> SignatureError:
    return SignatureError(
        f"{path} cannot be used as a key.",
        f"Found: {found}",
        fix="ssh-keygen -t ed25519 makes a pair of keys: one to sign with, and a .pub to trust",
        code=code,
    )
