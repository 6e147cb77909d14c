"""Builders for the engine's tests: the same rows, declared in different ways."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.builders.encode import media_columns
from tests.waiting import until

F = tfds.features
FEATURES = {
    "x": F.Tensor(shape=(3,), dtype=np.float32),
    "text": F.Text(),
    "n": np.int64,
    "label": F.ClassLabel(names=["a", "b"]),
    "list": F.Sequence(np.int32),
}
SCHEMA = pa.schema(
    {
        "key": pa.string(), "x": pa.list_(pa.float32(), 3), "text": pa.string(), "n": pa.int64(),
        "label": pa.string(), "list": pa.list_(pa.int32()),
    }
)  # fmt: skip
UNITS = 6


def row(unit: int, i: int) -> dict[str, Any]:
    seed = unit * 1_000_003 + i
    return {
        "x": np.float32([seed, seed / 3, -seed]),
        "text": "é" * (seed % 50),
        "n": seed % 1000 - 5,
        "label": "ab"[i % 2],
        "list": list(range(i % 4)),
    }


class _Toy(my_datasets.Builder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "First."}
    name = "toy_engine"
    rows: ClassVar[int] = 400
    # What happens before an example is yielded: (unit, i) -> the pair, or None for the usual one.
    before: ClassVar[Any] = staticmethod(lambda unit, i: None)

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict(FEATURES))

    def _generate_examples(self, unit: int) -> Iterator[Any]:
        for i in range(self.rows):
            yield type(self).before(unit, i) or (f"{unit}-{i}", row(unit, i))


class Plain(_Toy, skip_registration=True):
    name = "toy_engine"  # TFDS would give each class a name of its own

    def _split_generators(self, dl_manager: Any) -> Any:
        return {
            "train": (pair for unit in range(UNITS) for pair in self._generate_examples(unit)),
            "test": self._generate_examples(99),
        }


class InUnits(_Toy, skip_registration=True):
    name = "toy_engine"  # TFDS would give each class a name of its own

    def _split_generators(self, dl_manager: Any) -> Any:
        return {
            "train": self.units(self._generate_examples, range(UNITS)),
            "test": self.units(self._generate_examples, [99]),
        }


class Columns(InUnits, skip_registration=True):
    name = "toy_engine"  # TFDS would give each class a name of its own

    def _generate_examples(self, unit: int) -> Iterator[Any]:
        rows = [{"key": f"{unit}-{i}", **row(unit, i)} for i in range(self.rows)]
        for begin in range(0, self.rows, 150):
            yield "key", pa.RecordBatch.from_pylist(rows[begin : begin + 150], schema=SCHEMA)


class Ordered(InUnits, skip_registration=True):
    name = "toy_engine"  # TFDS would give each class a name of its own

    def _info(self) -> Any:
        features = F.FeaturesDict(FEATURES)
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)


class ByTfds(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """The same through TFDS's own writer: what the order and the content are measured by."""

    VERSION = _Toy.VERSION
    name = "toy_engine"
    rows: ClassVar[int] = 400
    before: ClassVar[Any] = staticmethod(lambda unit, i: None)
    disable_shuffling: ClassVar[bool] = False
    _generate_examples = _Toy._generate_examples
    _split_generators = Plain._split_generators

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(
            builder=self, features=F.FeaturesDict(FEATURES),
            disable_shuffling=self.disable_shuffling,
        )  # fmt: skip


class Reusing(my_datasets.Builder, skip_registration=True):
    """Uses the same dict, array, list and file for each example."""

    VERSION = _Toy.VERSION
    RELEASE_NOTES: ClassVar = {"1.0.0": "First."}
    name = "toy_reusing"

    def _info(self) -> Any:
        features = F.FeaturesDict(
            {
                "array": F.Tensor(shape=(4,), dtype=np.int64),
                "list": F.Sequence(np.int64),
                "image": F.Image(shape=(None, None, 1)),
                "path": F.Image(shape=(None, None, 1)),
                "open": F.Image(shape=(None, None, 1)),
                "nested": F.Sequence({"n": np.int64}),
            }
        )
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self._generate_examples(0)}

    def _generate_examples(self, _: int) -> Iterator[Any]:
        array, listed, image = np.zeros(4, np.int64), [0], np.zeros((2, 2, 1), np.uint8)
        nested = [{"n": 0}]
        example: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "image.png")
            for i in range(50):
                array += i
                listed[0] = nested[0]["n"] = i
                image += np.uint8(1)
                path.write_bytes(media_columns.encode_png(np.full((1, 3, 3, 1), i, np.uint8))[0])
                with path.open("rb") as file:
                    example |= {
                        "array": array, "list": listed, "image": image, "path": str(path),
                        "open": file, "nested": nested,
                    }  # fmt: skip
                    yield i, example


class ReusingInUnits(Reusing, skip_registration=True):
    name = "toy_reusing"

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self.units(self._generate_examples, [0])}


class ReusingByTfds(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = _Toy.VERSION
    name = "toy_reusing"
    _info = Reusing._info
    _split_generators = Reusing._split_generators
    _generate_examples = Reusing._generate_examples


class Large(my_datasets.Builder, skip_registration=True):
    """Examples of 100 kB."""

    VERSION = _Toy.VERSION
    RELEASE_NOTES: ClassVar = {"1.0.0": "First."}
    name = "toy_large"
    rows: ClassVar[int] = 100
    wrong: ClassVar[int | None] = None

    def _info(self) -> Any:
        features = F.FeaturesDict({"array": F.Tensor(shape=(100_000,), dtype=np.uint8)})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self._generate_examples(0)}

    def _generate_examples(self, unit: int) -> Iterator[Any]:
        rng = np.random.default_rng(unit)
        for i in range(unit * self.rows, (unit + 1) * self.rows):
            size = 99_999 if i == self.wrong else 100_000
            yield i, {"array": rng.integers(0, 128, size, np.uint8)}


class LargeInUnits(Large, skip_registration=True):
    name = "toy_large"
    units_of_it: ClassVar[int] = 70

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self.units(self._generate_examples, range(self.units_of_it))}


class Episodes(my_datasets.Builder, skip_registration=True):
    """Datasets of steps, given as generators; example 3 does not fit."""

    VERSION = _Toy.VERSION
    RELEASE_NOTES: ClassVar = {"1.0.0": "First."}
    name = "toy_episodes"

    def _info(self) -> Any:
        features = F.FeaturesDict({"steps": F.Dataset({"action": np.int64}), "n": np.int64})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[Any]:
        for i in range(1, 6):
            steps = ({"action": step} for step in range(i))
            yield i, {"steps": steps, "n": "three" if i == 3 else i}


def failing_at(number: int) -> Callable[[int, int], None]:
    """Returns what makes the generator of one unit raise at its first example."""

    def before(unit: int, i: int) -> None:
        if unit == number:
            raise RuntimeError("stop")

    return before


def stop_here(unit: int, i: int, *, file: Path, how: str) -> None:
    """Kills this process, or hangs, in the middle of unit 3, unless `file` is there already."""
    if (unit, i) == (3, 200) and not file.exists():
        file.touch()
        if how == "kill":
            # Something that the other worker finished is in the journal, which has a first line.
            (journal,) = file.parent.glob("*/.*.work/journal.jsonl")
            until(lambda: journal.read_text().count("\n") > 3, "the other worker finishes nothing")
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
