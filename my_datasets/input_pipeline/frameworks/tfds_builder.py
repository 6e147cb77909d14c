"""Reads a prepared version with TFDS, wherever its shards are.

If shards are downloaded on demand, `OnDemandBuilder` replaces `as_dataset`: TensorFlow opens shards
by name, so each shard must be on disk by then, and stay there while it is read. Everything else is
as in TFDS 4.9 (`core/reader.py`, `core/dataset_builder.py`): the same examples in the same order.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from my_datasets.builders.from_directory import builder_from_directory
from my_datasets.errors import (
    CorruptShardError,
    FeatureError,
    InvalidOptionError,
    SplitNotFoundError,
    missing_shard,
)
from my_datasets.records.random_access import lock_shard, unlock_shard
from my_datasets.resolving.resolver import ResolvedVersion
from my_datasets.resolving.shard_fetcher import ShardFetcher, ShardProvider
from my_datasets.storage import addresses

# TFDS's own defaults: files interleaved if their order need not be kept; bytes read at once.
_IN_TURN = 16
_BUFFER_BYTES = 8 << 20
# Shards prefetched concurrently.
_AHEAD = 4
# Attempts to open a downloaded shard before giving up: others evict it meanwhile.
_TRIES = 20


class OnDemandBuilder:
    """A read-only builder of a TFRecord version whose shards are downloaded on demand.

    Attributes:
      info: TFDS's description of the version.
      data_dir: The directory with its metadata.
    """

    def __init__(self, version_dir: Path, provider: ShardProvider) -> None:
        """Opens the metadata in a directory; the shards come from `provider`."""
        builder = builder_from_directory(version_dir)
        self.info: tfds.core.DatasetInfo = builder.info
        self.data_dir = builder.data_dir
        self._provider = provider

    def as_dataset(
        self,
        split: Any = None,
        *,
        as_supervised: bool = False,
        batch_size: int | None = None,
        shuffle_files: bool = False,
        decoders: Any = None,
        read_config: tfds.ReadConfig | None = None,
    ) -> Any:
        """Returns what `as_dataset` of TFDS's builder would, with the same arguments.

        Raises:
          ValueError: There is no such split.
          FeatureError: `as_supervised` is set, but the dataset declares no input and target.
          InvalidOptionError: The cache is too small for the interleaved shards; or the split is
            empty; or the options would not keep the examples' order, which the dataset guarantees.
        """
        if as_supervised and not self.info.supervised_keys:
            raise FeatureError(
                f"{self.info.full_name} declares no input and target.",
                fix="leave as_supervised out",
            )
        config = read_config or tfds.ReadConfig()
        names = split if split is not None else {name: name for name in self.info.splits}

        def read(name: Any) -> Any:
            whole = self._read(name, config, decoders, shuffle_files=shuffle_files)
            return self._finished(whole, config, batch_size, as_supervised=as_supervised)

        return tf.nest.map_structure(read, names)

    def _read(
        self, split: Any, config: tfds.ReadConfig, decoders: Any, *, shuffle_files: bool
    ) -> tf.data.Dataset:
        files = self.info.splits[split].file_instructions
        if config.experimental_interleave_sort_fn is not None:
            files = config.experimental_interleave_sort_fn(files)
        if not files:
            raise InvalidOptionError(f"{split!r} has no examples.", fix="choose another slice")
        in_turn = self._in_turn(config, shuffle_files=shuffle_files)
        names = {Path(one.filename).name for one in files}
        fetcher = self._provider.fetcher(names, min(in_turn, len(names)))
        shards = _chosen(files, config, shuffle_files=shuffle_files)
        if fetcher.spare:
            shards = shards.map(
                lambda shard: {**shard, "path": _prefetched(fetcher, shard["path"])},
                num_parallel_calls=min(_AHEAD, fetcher.spare), deterministic=True,
            )  # fmt: skip
        is_cut = any(one.skip or not one.takes_all for one in files)
        records = shards.interleave(
            lambda shard: _records(fetcher, shard, config, is_cut=is_cut),
            cycle_length=in_turn, block_length=config.interleave_block_length,
        )  # fmt: skip
        if config.assert_cardinality and not config.input_context:
            count = sum(one.take for one in files)
            records = records.apply(tf.data.experimental.assert_cardinality(count))
        records = records.with_options(config.options)
        return records.map(
            self._decoder(decoders, config), num_parallel_calls=config.num_parallel_calls_for_decode
        )

    def _in_turn(self, config: tfds.ReadConfig, *, shuffle_files: bool) -> int:
        """Returns the number of files to interleave."""
        cycle = config.interleave_cycle_length
        is_ordered = self.info.disable_shuffling
        if isinstance(cycle, str):  # TFDS's "missing"
            cycle = 1 if is_ordered else _IN_TURN
        if is_ordered and config.enable_ordering_guard and (shuffle_files or cycle != 1):
            raise InvalidOptionError(
                f"The examples of {self.info.full_name} have an order, which would be lost.",
                fix="leave out shuffle_files and interleave_cycle_length; or say "
                "ReadConfig(enable_ordering_guard=False)",
            )
        return cycle if cycle and cycle > 0 else _IN_TURN

    def _decoder(self, decoders: Any, config: tfds.ReadConfig) -> Any:
        features = self.info.features
        if isinstance(decoders, tfds.decode.PartialDecoding):
            features, decoders = decoders.extract_features(features), decoders.decoders

        def decoded(record: tf.Tensor) -> Any:
            return features.deserialize_example(record, decoders=decoders)

        def with_id(identifier: tf.Tensor, record: tf.Tensor) -> dict[str, Any]:
            return {**decoded(record), "tfds_id": identifier}

        return with_id if config.add_tfds_id else decoded

    def _finished(
        self,
        examples: tf.data.Dataset,
        config: tfds.ReadConfig,
        batch_size: int | None,
        *,
        as_supervised: bool,
    ) -> Any:
        """Batches the examples; with `batch_size=-1`, returns the whole split as tensors."""
        is_whole = batch_size == -1
        if is_whole:
            batch_size = max(1, self.info.splits.total_num_examples)
        if batch_size:
            shapes = tf.compat.v1.data.get_output_shapes(examples)
            examples = examples.padded_batch(batch_size, shapes)
        if as_supervised:
            keys = self.info.supervised_keys
            examples = examples.map(
                lambda example: tf.nest.map_structure(lambda key: example[key], keys)
            )
        if not config.skip_prefetch:
            examples = examples.prefetch(tf.data.AUTOTUNE)
        return tf.data.experimental.get_single_element(examples) if is_whole else examples


def _chosen(
    files: Sequence[tfds.core.utils.shard_utils.FileInstruction],
    config: tfds.ReadConfig,
    *,
    shuffle_files: bool,
) -> tf.data.Dataset:
    """Returns the shards to open, in order, with the records to read from each."""
    shards = tf.data.Dataset.from_tensor_slices({
        "path": [os.fspath(one.filename) for one in files],
        "skip": tf.constant([one.skip for one in files], tf.int64),
        "take": tf.constant([one.take for one in files], tf.int64),
    })  # fmt: skip
    if config.input_context:
        context = config.input_context
        if context.num_input_pipelines > len(files):
            raise InvalidOptionError(
                f"{len(files)} files are not enough for {context.num_input_pipelines} readers.",
                fix="give each a slice of the split instead of files",
            )
        shards = shards.shard(context.num_input_pipelines, context.input_pipeline_id)
    if shuffle_files:
        shards = shards.shuffle(
            len(files), seed=config.shuffle_seed,
            reshuffle_each_iteration=config.shuffle_reshuffle_each_iteration,
        )  # fmt: skip
    return shards.repeat() if config.repeat_filenames else shards


def _prefetched(fetcher: ShardFetcher, path: tf.Tensor) -> tf.Tensor:
    """Returns a shard's path, after prefetching the shard if the cache has room."""

    def prefetch(name: tf.Tensor) -> tf.Tensor:
        fetcher.try_fetch(Path(name.numpy().decode()))
        return name

    found = tf.py_function(prefetch, [path], tf.string)
    found.set_shape(())
    return found


@tf.autograph.experimental.do_not_convert
def _records(
    fetcher: ShardFetcher, shard: Mapping[str, tf.Tensor], config: tfds.ReadConfig, *, is_cut: bool
) -> tf.data.Dataset:
    """Returns the records of a shard, which stays on disk while it is read; with ids if requested.

    `is_cut` says whether the split leaves out some records of some shards.
    """

    def opened(path: bytes) -> Iterator[bytes]:
        with _downloaded(fetcher, Path(path.decode())):
            yield path

    paths = tf.data.Dataset.from_generator(
        opened, args=(shard["path"],), output_signature=tf.TensorSpec((), tf.string)
    )
    size = config.override_buffer_size or _BUFFER_BYTES
    records = paths.flat_map(lambda path: tf.data.TFRecordDataset(path, buffer_size=size))
    if config.add_tfds_id:
        file = tf.strings.split(shard["path"], os.sep)[-1]
        records = records.enumerate().map(
            lambda number, record: (
                tf.strings.join([file, tf.strings.as_string(number)], "__"), record
            )
        )  # fmt: skip
    if is_cut:
        records = records.skip(shard["skip"]).take(shard["take"])
    return records


@contextlib.contextmanager
def _downloaded(fetcher: ShardFetcher, path: Path) -> Iterator[None]:
    """Downloads a shard, and keeps it on disk within the context.

    Raises:
      CorruptShardError: Other processes evict it each time.
    """
    process = os.getpid()
    for _ in range(_TRIES):
        fetcher(path)
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            lock_shard(file.fileno())
            try:
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    yield
                    return
            finally:
                unlock_shard(file.fileno(), process)
    raise CorruptShardError(
        f"{path} is taken away as often as it comes.",
        fix="give a larger cache_bytes: others who share the cache need all of it",
    )


def prepared_builder(version: ResolvedVersion) -> tfds.core.DatasetBuilder | OnDemandBuilder:
    """Returns what reads a prepared version: TFDS, or what fetches its shards for TFDS.

    Raises:
      DataDirError: Its shards must be fetched, and are no TFRecords.
    """
    if version.provider is not None:
        version.require_tfrecords()
        return OnDemandBuilder(version.path, version.provider)
    return builder_from_directory(version.path)


def as_dataset(
    builder: tfds.core.DatasetBuilder | OnDemandBuilder,
    split: Any,
    *,
    with_info: bool = False,
    **options: Any,
) -> Any:
    """Returns what `my_datasets.load` returns, of a builder whose data is prepared.

    The options are those of TFDS's `as_dataset`.
    """
    try:
        if isinstance(builder, tfds.core.DatasetBuilder):
            _require_shards(builder, split)
        dataset = builder.as_dataset(split=split, **options)
    except ValueError as error:
        if "Unknown split" not in str(error):
            raise
        raise SplitNotFoundError(
            f"Dataset {builder.info.full_name!r} has no split {split!r}.",
            f"Its splits, in {builder.data_dir}: {', '.join(builder.info.splits)}",
            fix="ask for one of those, or a slice such as 'train[:80%]'",
        ) from error
    return (dataset, builder.info) if with_info else dataset


def _require_shards(builder: tfds.core.DatasetBuilder, split: object) -> None:
    """Raises CorruptShardError if a file of a split is missing: TensorFlow would say so later."""
    if addresses.is_remote(builder.data_dir):
        return  # it costs a request for each
    for one in tf.nest.flatten(list(builder.info.splits) if split is None else split):
        for file in builder.info.splits[one].file_instructions:
            if not Path(file.filename).exists():
                raise missing_shard(file.filename)
