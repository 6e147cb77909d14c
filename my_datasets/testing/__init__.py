"""Tools for testing one's own builders; part of the public interface."""

from my_datasets.testing.builder_case import BuilderTestCase

__all__ = ["BuilderTestCase"]
