"""A version whose values are other than before is told of; from builds of two versions."""

from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.comparison.diff import diff
from my_datasets.core.issue import Severity
from my_datasets.statistics.constraints import Constraint
from my_datasets.verification.verifier import Level, verify
from tests.building.engines.builds import build


class First(my_datasets.Builder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "First.", "2.0.0": "Heavier."}
    name = "toy_drift"
    offset: ClassVar[float] = 0

    def _info(self) -> Any:
        features = tfds.features.FeaturesDict({"weight": np.float32})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Any:
        for i, one in enumerate(np.random.default_rng(0).normal(size=500)):
            yield i, {"weight": np.float32(one + self.offset)}


class Second(First, skip_registration=True):
    VERSION = tfds.core.Version("2.0.0")
    name = "toy_drift"
    offset = 1.0


class Declared(Second, skip_registration=True):
    name = "toy_drift"
    CONSTRAINTS: ClassVar = {"weight": Constraint(max_drift=0.2)}


@pytest.mark.parametrize(("cls", "severity"), [(Second, "warning"), (Declared, "error")])
def test_it_is_reported(tmp_path, cls, severity):
    first, second = build(First, tmp_path), build(cls, tmp_path)
    assert verify(first, level=Level.FAST).issues == ()
    (issue,) = verify(second, level=Level.FAST).issues
    assert (issue.code, issue.severity) == ("drift", Severity(severity))
    assert issue.node == "split train, feature weight"
    assert issue.problem == "Its values differ from those in toy_drift:1.0.0."
    limit = "0.2; median" if severity == "error" else "0.1; median"
    assert f"Kolmogorov-Smirnov distance of at most {limit}" in issue.expected
    (moved,) = diff(first, second).moved
    assert (moved.split, moved.feature, moved.statistic) == ("train", "weight", "values")
