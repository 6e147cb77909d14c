"""What a builder computes on Beam beside its examples: a value for each key, kept with the work."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from my_datasets.building.engines.beam.workspace.build_files import BuildFiles
from my_datasets.errors import BuilderError, LostExamplesError, explain

_FOLDER = "metadata"
# Says that the values are complete, and which files hold them.
_COMMITTED = f"{_FOLDER}/committed.json"


def add(work: BuildFiles, collections: Mapping[Any, beam.PCollection]) -> None:
    """Adds the writing of values to the pipeline of their collections.

    Args:
      work: Where they are written.
      collections: Each with one element: the list of what the builder gave for that key.
    """
    for key, collection in collections.items():
        _ = collection | f"Write metadata {key}" >> beam.Map(_Write(work, key))


def commit(work: BuildFiles, keys: Iterable[Any]) -> None:
    """Writes down that all values are there, beside those of which it is written already.

    Args:
      work: Where they are.
      keys: Their keys, as given to `add`.

    Raises:
      LostExamplesError: One is not there.
    """
    names = {_name(key): key for key in keys}
    for key, said in zip(names.values(), work.read_all(names), strict=True):
        if said is None:
            raise LostExamplesError(
                explain(
                    f"The pipeline ended without the metadata {key!r}.",
                    fix="run the same again; if it stays, see the runner's own logs",
                )
            )
    # A pipeline that is run again for one split has only the metadata of that one.
    work.write_json(_COMMITTED, sorted({*names, *(work.read_json(_COMMITTED) or ())}))


def read(work: BuildFiles) -> dict[Any, Any] | None:
    """Returns the values by their keys; None if they are not complete."""
    names: Iterable[str] | None = work.read_json(_COMMITTED)
    if names is None:
        return None
    return {said["key"]: said["value"] for said in work.read_all(names)}


@dataclass(frozen=True)
class _Write:
    """Writes the value of a key."""

    work: BuildFiles
    key: Any

    def __call__(self, elements: list[Any]) -> None:
        with self.work.telling_failures():
            if len(elements) != 1:
                raise BuilderError(
                    explain(
                        f"The collection for the metadata {self.key!r} has {len(elements)} "
                        "elements.",
                        "Expected one, such as beam.CombineGlobally(...) gives.",
                        fix="combine it in _generate_examples or _build_pcollection",
                    )
                )
            try:
                self.work.write_json(_name(self.key), {"key": self.key, "value": elements[0]})
            except (TypeError, ValueError) as error:
                raise BuilderError(
                    explain(
                        f"The metadata {self.key!r} is a {type(elements[0]).__name__}, which "
                        "JSON does not hold.",
                        fix="convert it to an int, float, str, list or dict: .item() of a NumPy "
                        "number",
                    )
                ) from error


def _name(key: Any) -> str:
    return f"{_FOLDER}/{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}.json"
