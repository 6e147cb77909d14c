"""JSON documents with signatures of all else in them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

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
    """What signs; see `my_datasets.publishing.signing.Signer`."""

    @property
    def fingerprint(self) -> str:
        """Of the key."""

    @property
    def public(self) -> "Trusts":
        """What trusts this key only."""

    def sign(self, purpose: str, message: bytes) -> Signature:
        """Returns the signature of a message."""


class Trusts(Protocol):
    """What knows whose signatures count; see `my_datasets.publishing.signing.TrustedKeys`."""

    def check(
        self, purpose: str, message: bytes, signatures: tuple[Signature, ...], what: str
    ) -> str:
        """Returns the fingerprint of a trusted key that signed; raises `SignatureError`."""


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
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("no object")
    signatures = tuple(Signature.from_json(one) for one in value.pop("signatures"))
    return value, _message(value), signatures


def _message(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")
