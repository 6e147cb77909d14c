"""Builds of the toys, and what is found on disk afterwards."""

import contextlib
import hashlib
import logging
import multiprocessing
import os
import signal
import time
from pathlib import Path

import tensorflow as tf
import tensorflow_datasets as tfds

from my_datasets.building.options import BuildOptions
from tests.building.engines import toys

THREE_SHARDS = tfds.download.DownloadConfig(num_shards=3)


def build(cls, data_dir, *, config=THREE_SHARDS, file_format=None, **options):
    """Builds with `BuildOptions(**options)`; returns the directory of the version."""
    builder = cls(data_dir=data_dir)
    builder.download_and_prepare(
        download_config=config, file_format=file_format, build_options=BuildOptions(**options)
    )
    return Path(builder.data_dir)


def shards(version_dir):
    return sorted(version_dir.glob("*-of-?????"))


def hashes(version_dir):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in shards(version_dir)
    }


def records(version_dir, split="train"):
    files = [str(path) for path in shards(version_dir) if f"-{split}." in path.name]
    found = tf.data.TFRecordDataset(files).as_numpy_iterator()
    return [tf.train.Example.FromString(record) for record in found]


def run_apart(data_dir, cls=toys.InUnits, **options):
    """Starts a build in a process of its own, with slow units; forked, to spare the imports."""

    def work():
        os.setsid()
        logging.disable()
        # The lock of its bars would be that of this process's, and stay locked when it is killed.
        tfds.disable_progress_bar()
        toys._Toy.before = staticmethod(_slow)
        build(cls, data_dir, **options)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def _slow(unit, i):
    if i % 100 == 0:
        time.sleep(0.05)


def kill(process):
    """Kills a build with all its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
