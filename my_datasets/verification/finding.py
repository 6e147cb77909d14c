"""Which prepared version is meant: by a reference, or by its directory."""

import os
from pathlib import Path

from my_datasets.input_pipeline import prepared


def version_dir(reference: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Returns the directory of a prepared version.

    One whose metadata are gone is found by its directory only.

    Args:
      reference: For example `digits:1.*.*`; or the directory of a version.
      data_dir: Where prepared data is; TFDS's default if None.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      NotPreparedError: There is no such version.
    """
    path = Path(reference).expanduser()
    if os.sep in reference and path.is_dir():
        return path
    return prepared.folder_of(reference, data_dir)
