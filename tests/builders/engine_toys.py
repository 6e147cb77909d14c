"""Builders for the engine's tests: the same rows, declared in different ways."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import tensorflow_datasets as tfds

import my_datasets

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


def stop_here(unit: int, i: int, *, file: Path, how: str) -> None:
    """Kills this process, or hangs, in the middle of unit 3, unless `file` is there already."""
    if (unit, i) == (3, 200) and not file.exists():
        time.sleep(1.5)  # let others finish and tell it
        file.touch()
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3600)
