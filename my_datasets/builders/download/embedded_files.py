"""Small source files that ship in a builder's own folder."""

import hashlib
from pathlib import Path

from my_datasets.errors import ChecksumError, SourceError, explain


def verify(path: Path, *, size: int, sha256: str, recorded_in: str) -> None:
    """Checks a source file against its recorded size and SHA-256.

    Args:
      path: The file.
      size: Recorded size, in bytes.
      sha256: Recorded SHA-256, in hexadecimal.
      recorded_in: The file with the record, to name in the error.

    Raises:
      SourceError: The file is missing.
      ChecksumError: The size or the SHA-256 differs.
    """
    if not path.is_file():
        raise SourceError(
            explain(
                f"The source file {path} is missing.",
                f"It is recorded in {recorded_in}, and ships with the builder.",
                fix="install the package that has the builder again",
            )
        )
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    found_size = path.stat().st_size
    if (found_size, found) != (size, sha256):
        raise ChecksumError(
            explain(
                f"The source file {path} has changed.",
                f"Expected by {recorded_in}: {size} bytes, SHA-256 {sha256}",
                f"Found: {found_size} bytes, SHA-256 {found}",
                fix="if it was damaged, install the package that has the builder again; if it is "
                "another edition, record it there and raise the dataset's VERSION",
            )
        )
