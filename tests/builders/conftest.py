"""What tests of builders share with those of the engines."""

from tests.building.engines.conftest import dask_in_process

__all__ = ["dask_in_process"]
