"""Tools to test your own builders; part of the public interface.

They require the `test` extra, because TFDS's own test tools import pytest and dill.
"""

from my_datasets.dependencies import missing_dependency

try:
    from my_datasets.testing.builder_case import BuilderTestCase
except ModuleNotFoundError as error:
    if error.name not in ("dill", "pytest"):
        raise
    raise missing_dependency(error.name, needed_for="testing builders") from error

__all__ = ["BuilderTestCase"]
