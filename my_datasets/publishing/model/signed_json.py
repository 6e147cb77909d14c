"""JSON documents with signatures of all else in them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from my_datasets.storage.json_files import parse_json

# What a change of a store's keys is signed for.
KEY_PURPOSE = "my-datasets-key"
_LONGEST = 1000


@dataclass(frozen=True)
class Signature:
    """A signature.

    Attributes:
      key: The fingerprint of the key, as `ssh-keygen -l` shows it.
      value: The signature, in base 64.
    """

    key: str
    value: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Signature":
        """Returns what was stored.

        Raises:
          ValueError, TypeError, KeyError: It is something else.
        """
        found = cls(value["key"], value["value"])
        if not all(isinstance(one, str) and len(one) < _LONGEST for one in asdict(found).values()):
            raise ValueError("no signature")
        return found


class Signs(Protocol):
    """What signs; see `my_datasets.publishing.model.signing.Signer`."""

    @property
    def fingerprint(self) -> str:
        """Of the key."""

    @property
    def public(self) -> "Trusts":
        """What trusts this key only."""

    def sign(self, purpose: str, message: bytes) -> Signature:
        """Returns the signature of a message."""


class Trusts(Protocol):
    """What knows whose signatures count; see `my_datasets.publishing.model.signing.TrustedKeys`."""

    @property
    def revoked(self) -> frozenset[str]:
        """The fingerprints of keys that counted, and do not any more."""

    def check(
        self, purpose: str, message: bytes, signatures: tuple[Signature, ...], what: str
    ) -> str:
        """Returns the fingerprint of a trusted key that signed; raises `SignatureError`."""

    def after(self, changes: "tuple[KeyChange, ...]", store: str) -> "Trusts":
        """Returns whose signatures count after changes that those who are trusted signed."""


@dataclass(frozen=True)
class KeyChange:
    """A key that signs for a store from now on, or does not any more.

    Attributes:
      action: `add` or `revoke`.
      key: The public key, `ssh-ed25519 KEY`.
      time: When, in ISO 8601.
      signature: Of what `message` returns, by a key that counted until then.
    """

    action: str
    key: str
    time: str
    signature: Signature

    def message(self, store: str, number: int) -> bytes:
        """Returns what is signed of it.

        Args:
          store: The store's id.
          number: How many changes came before it.
        """
        whole = {"store": store, "number": number, "action": self.action, "key": self.key,
                 "time": self.time}  # fmt: skip
        return _message(whole)

    @property
    def identity(self) -> str:
        """Its SHA-256."""
        return hashlib.sha256(_message(asdict(self))).hexdigest()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "KeyChange":
        """Returns what was stored.

        Raises:
          ValueError, TypeError, KeyError: It is something else.
        """
        found = cls(
            value["action"], value["key"], value["time"], Signature.from_json(value["signature"])
        )
        texts = (found.action, found.key, found.time)
        if not all(isinstance(one, str) and len(one) < _LONGEST for one in texts):
            raise ValueError("no change of a key")
        if found.action not in ("add", "revoke"):
            raise ValueError(f"no change of a key: {found.action!r:.80}")
        return found


def sealed(value: Mapping[str, Any], purpose: str, signer: Signs | None) -> bytes:
    """Returns a document as it is stored, signed if there is a signer."""
    signatures = [asdict(signer.sign(purpose, _message(value)))] if signer is not None else []
    whole = {**value, "signatures": signatures}
    return (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode("ascii")


def unsealed(data: bytes) -> tuple[dict[str, Any], bytes, tuple[Signature, ...]]:
    """Returns a document, what was signed of it, and its signatures, which are not checked.

    Raises:
      ValueError, TypeError, KeyError, AttributeError, RecursionError: It is none.
    """
    value = parse_json(data)
    if not isinstance(value, dict):
        raise TypeError("no object")
    signatures = tuple(Signature.from_json(one) for one in value.pop("signatures"))
    return value, _message(value), signatures


def _message(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")
