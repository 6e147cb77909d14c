"""What is wrong with a value that does not fit its feature."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core import example_serializer

from my_datasets.building.units import Misfit


def is_of_the_machine(error: Exception) -> bool:
    """Returns whether an error tells of the machine's trouble, not of the example's."""
    return isinstance(error, (MemoryError, OSError)) and not isinstance(error, FileNotFoundError)


def located(
    feature: tfds.features.FeatureConnector, value: Any, error: Exception, path: str = ""
) -> Misfit:
    """Returns what is wrong with a value, as deep in the features as it can be told."""
    if isinstance(feature, tfds.features.FeaturesDict):
        if not isinstance(value, dict) or value.keys() != feature.keys():
            is_dict = isinstance(value, dict)
            found = f"the keys {sorted(map(str, value))}" if is_dict else _shortly(value)
            return Misfit(path, f"the keys {sorted(feature.keys())}", found)
        parts: Iterator[tuple[str, Any, Any]] = (
            (f"{path}/{key}" if path else key, feature[key], value[key]) for key in feature
        )
    elif type(feature) is tfds.features.Sequence and isinstance(value, (list, tuple)):
        parts = ((f"{path}[{i}]", feature.feature, item) for i, item in enumerate(value))
    else:
        return Misfit(path, repr(feature), _shortly(value))
    for inner_path, inner, item in parts:
        failure = _failure(inner, item)
        if failure is not None:
            return located(inner, item, failure, inner_path)
    return Misfit(path, repr(feature), f"{_shortly(value)}: {error}")


def _failure(feature: tfds.features.FeatureConnector, value: Any) -> Exception | None:
    serializer = example_serializer.ExampleSerializer({"value": feature.get_serialized_info()})
    try:
        serializer.get_tf_example({"value": feature.encode_example(value)})
    except Exception as error:
        return error
    return None


def _shortly(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}, shape {value.shape}"
    text = repr(value) if not isinstance(value, str) else value
    return f"{text if len(text) <= 100 else text[:100] + '…'} ({kind})"
