"""JSON documents that contain signatures of the rest of the document."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, Protocol

import msgspec

from my_datasets.core.json_types import Json
from my_datasets.storage.json_files import convert_json, parse_json

# Purpose of the signature of a key change.
KEY_PURPOSE = "my-datasets-key"
# Texts of signatures and key changes.
Short = Annotated[str, msgspec.Meta(max_length=999)]


@dataclass(frozen=True)
class Signature:
    """A signature in base64, and the fingerprint of the key, as `ssh-keygen -l` shows it."""

    key: Short
    value: Short


class Signs(Protocol):
    """A private key; see `my_datasets.publishing.model.signing.Signer`."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the key."""

    @property
    def public(self) -> "Trusts":
        """A set of trusted keys with this key only."""

    def sign(self, purpose: str, message: bytes) -> Signature:
        """Returns the signature of a message."""


class Trusts(Protocol):
    """A set of trusted keys; see `my_datasets.publishing.model.signing.TrustedKeys`."""

    @property
    def revoked(self) -> frozenset[str]:
        """The fingerprints of revoked keys."""

    def check(
        self, purpose: str, message: bytes, signatures: tuple[Signature, ...], what: str
    ) -> str:
        """Returns the fingerprint of a trusted key that signed; raises `SignatureError`."""

    def after(self, changes: "tuple[KeyChange, ...]", store: str) -> "Trusts":
        """Returns the keys that are trusted after changes that trusted keys signed."""


@dataclass(frozen=True)
class KeyChange:
    """The addition or revocation of one of a store's public keys, `ssh-ed25519 KEY`."""

    action: Literal["add", "revoke"]
    key: Short
    time: Short
    signature: Signature

    def message(self, store: str, number: int) -> bytes:
        """Returns what is signed, given the store's id and the number of earlier changes."""
        whole: dict[str, Json] = {"store": store, "number": number, **asdict(self)}
        del whole["signature"]
        return _message(whole)

    @property
    def identity(self) -> str:
        """The SHA-256 of the change."""
        return hashlib.sha256(_message(asdict(self))).hexdigest()


def sign_json(value: Mapping[str, Json], purpose: str, signer: Signs | None) -> bytes:
    """Returns the stored form of a document, signed if there is a signer."""
    signatures = [asdict(signer.sign(purpose, _message(value)))] if signer is not None else []
    whole = {**value, "signatures": signatures}
    return (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode("ascii")


def parse_signed_json(data: bytes) -> tuple[dict[str, Json], bytes, tuple[Signature, ...]]:
    """Parses a document; returns it with the signed bytes and its unverified signatures.

    Raises:
      ValueError, TypeError, KeyError: It is malformed.
    """
    value = parse_json(data)
    if not isinstance(value, dict):
        raise TypeError("not an object")
    signatures = convert_json(value.pop("signatures"), tuple[Signature, ...])
    return value, _message(value), signatures


def _message(value: Mapping[str, Json]) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")
