"""Which prepared version is meant: by a reference, or by its directory."""

import os
from pathlib import Path

from my_datasets.core.reference import DatasetReference
from my_datasets.input_pipeline.read import prepared
from my_datasets.resolving.lock import Lock


def version_dir(
    reference: prepared.Reference,
    data_dir: str | os.PathLike[str] | None = None,
    lock: Lock | None = None,
) -> Path:
    """Returns the directory of a prepared version.

    One whose metadata are gone is found by its directory only.

    Args:
      reference: For example `digits:1.*.*`; or the directory of a version, or what stands for it.
      data_dir: Where prepared data is; TFDS's default if None.
      lock: What says which version a reference means. The version's bytes are not compared with it.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      NotPreparedError: There is no such version.
    """
    is_path = isinstance(reference, os.PathLike)
    text = os.fspath(reference) if isinstance(reference, os.PathLike) else str(reference)
    path = Path(text).expanduser()
    if (is_path or os.sep in text) and path.is_dir():
        return path
    parsed = reference if isinstance(reference, DatasetReference) else DatasetReference.parse(text)
    return prepared.folder_of(lock.exact(parsed) if lock is not None else parsed, data_dir)
