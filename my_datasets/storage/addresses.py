"""Addresses: tells paths on this machine from locations in an object store."""

import os
import re
import urllib.parse
from collections.abc import Collection
from pathlib import Path
from typing import cast

from my_datasets.errors import InvalidOptionError

# Object stores in which TFDS reads and writes data.
BY_TENSORFLOW = ("gs",)
# NUL, and bytes that are no UTF-8 as `os.fsdecode` shows them.
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def scheme_of(path: str | os.PathLike[str]) -> str | None:
    """Returns the scheme of an address, such as `s3`; None for a path.

    `pathlib.Path("s3://bucket")` is `s3:/bucket`, and was meant as an address all the same.
    """
    found = _ADDRESS.match(os.fspath(path))
    return found[1].lower() if found else None


def local_path(
    path: str | os.PathLike[str], what: str, fix: str = "name a path on this machine"
) -> Path:
    """Returns the path on this machine that a path or a `file:///` address means; expands `~`.

    Everything that only works on this machine calls this function: as a path, `s3://bucket` would
    be a folder called `s3:` in the working directory. Errors say `what` it is, such as "The data
    directory", and the `fix`.

    Raises:
      InvalidOptionError: It is a remote address, or not a valid file name.
    """
    text = _possible(path, what)
    if scheme_of(text) is None:
        return Path(text).expanduser()
    if text.lower().startswith("file:///"):
        return Path(urllib.parse.unquote(text[len("file://") :]))
    raise InvalidOptionError(
        f"{what} {text} is an address; it must be on this machine.",
        "Expected: a path, or file:///PATH",
        fix=fix,
    )


def path_or_address(
    path: str | os.PathLike[str],
    what: str,
    schemes: Collection[str] | None = BY_TENSORFLOW,
) -> str:
    """Returns a path on this machine, or an address of one of some kinds, as text.

    Of `file:///PATH` the path is returned. Errors say `what` it is. `schemes` has the kinds of
    addresses, such as `gs`; None for all.

    Raises:
      InvalidOptionError: It is another kind of address, an address that is none, or no name that
        a file can have.
    """
    text, scheme = _possible(path, what), scheme_of(path)
    if scheme is None or text.lower().startswith("file:///"):
        return os.fspath(local_path(text, what)) if scheme else text
    if "://" not in text:
        raise InvalidOptionError(
            f"{what} {text} is neither a path nor an address.",
            "pathlib.Path takes a slash out of an address.",
            fix=f"give it as a str: {text.replace(':/', '://', 1)}",
        )
    if schemes is not None and scheme not in schemes:
        known = "".join(f", {one}://..." for one in schemes)
        raise InvalidOptionError(
            f"{what} {text} is an address of a kind that is not supported here.",
            f"Expected: a path{known}",
            fix="name one of these",
        )
    return text


def _possible(path: str | os.PathLike[str], what: str) -> str:
    """Returns a path as text if a file can have that name, on this machine and for TensorFlow."""
    text = os.fspath(path)
    if text and not _IMPOSSIBLE.search(text):
        return text
    raise InvalidOptionError(
        f"{what} {text!r} is no name that a file can have.",
        "Expected: a text that is not empty, without NUL, in UTF-8",
        fix="give another name",
    )


def is_remote(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory is a URL such as `gs://bucket/data`, not a local path."""
    return "://" in os.fspath(directory) and scheme_of(directory) != "file"


def as_path(directory: str | os.PathLike[str]) -> Path:
    """Returns a path to read a local or remote directory by; `~` is expanded."""
    if is_remote(path_or_address(directory, "The directory", ("gs", "s3"))):
        from etils import epath  # only here: it is not needed, and not free, for local paths

        return cast(Path, epath.Path(directory))
    return local_path(directory, "The directory")


def parts_without_secrets(address: str) -> str:
    """Returns an address without credentials (the part before an `@`) and without a query."""
    scheme, separator, rest = address.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
