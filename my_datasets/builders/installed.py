"""Source files that an installed distribution carries, named by package URLs.

A package URL (https://github.com/package-url/purl-spec) such as
`pkg:pypi/scikit-learn#sklearn/datasets/data/digits.csv.gz` names a file inside a distribution. It
stands in the checksums file where the URL of a download stands, in TFDS's own format.
"""

import hashlib
import importlib.metadata
from pathlib import Path

from my_datasets.errors import ChecksumError, MissingDependencyError, SourceError, explain

_PREFIX = "pkg:pypi/"


def locate(url: str) -> Path:
    """Returns where the file that a package URL names lies in this environment.

    Args:
      url: `pkg:pypi/<distribution>#<path inside it>`.

    Raises:
      SourceError: `url` is not of that form, or the distribution has no such file.
      MissingDependencyError: The distribution is not installed.
    """
    distribution, _, inner = url.removeprefix(_PREFIX).partition("#")
    if not url.startswith(_PREFIX) or not distribution or not inner:
        raise SourceError(
            explain(
                f"{url!r} does not name a file of an installed distribution.",
                mend=f"write {_PREFIX}<distribution>#<path inside it>",
            )
        )
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingDependencyError(
            explain(
                f"The source file {inner} comes with {distribution}, which is not installed.",
                mend=f"pip install {distribution}",
            )
        ) from error
    path = Path(str(found.locate_file(inner)))
    if not path.is_file():
        raise SourceError(
            explain(
                f"{distribution} {found.version} is installed without its file {inner}.",
                f"Expected at: {path}",
                mend=f"pip install --force-reinstall {distribution}",
            )
        )
    return path


def verify(path: Path, url: str, *, size: int, sha256: str, checksums: Path) -> None:
    """Checks a source file against its recorded size and SHA-256.

    Args:
      path: The file.
      url: The package URL it was found by.
      size: Recorded size, in bytes.
      sha256: Recorded SHA-256, in hexadecimal.
      checksums: The file that records them, to name in the error.

    Raises:
      ChecksumError: One of the two differs.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    found_size = path.stat().st_size
    if (found_size, found) == (size, sha256):
        return
    distribution = url.removeprefix(_PREFIX).partition("#")[0]
    raise ChecksumError(
        explain(
            f"The source file {path} has changed.",
            f"Expected by {checksums}: {size} bytes, SHA-256 {sha256}",
            f"Found: {found_size} bytes, SHA-256 {found}",
            mend=f"if it was damaged, pip install --force-reinstall {distribution}; if it really "
            "is another edition, record it there and raise the dataset's VERSION",
        )
    )
