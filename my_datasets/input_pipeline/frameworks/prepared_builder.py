"""Reads a prepared version with TFDS, wherever its shards are."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from my_datasets.builders.from_directory import builder_from_directory
from my_datasets.errors import SplitNotFoundError, explain, missing_shard
from my_datasets.input_pipeline.frameworks.streamed_dataset import OnDemandBuilder
from my_datasets.records.shard_provider import ShardProvider, origin_of
from my_datasets.storage import addresses


def prepared_builder(
    version_dir: Path, origin: ShardProvider | None = None
) -> tfds.core.DatasetBuilder | OnDemandBuilder:
    """Returns what reads a prepared version.

    Args:
      version_dir: The directory with its metadata.
      origin: Where its shards come from; None for the directory, or for where the metadata says.
    """
    origin = origin or origin_of(version_dir)
    return OnDemandBuilder(version_dir, origin) if origin else builder_from_directory(version_dir)


def as_dataset(
    builder: tfds.core.DatasetBuilder | OnDemandBuilder,
    split: Any,
    with_info: bool,
    as_supervised: bool,
    batch_size: int | None,
    shuffle_files: bool,
    decoders: Any,
    read_config: tfds.ReadConfig | None,
) -> Any:
    """Returns what `my_datasets.load` returns, of a builder whose data is prepared."""
    try:
        if isinstance(builder, tfds.core.DatasetBuilder):
            _require_shards(builder, split)
        dataset = builder.as_dataset(
            split=split,
            as_supervised=as_supervised,
            batch_size=batch_size,
            shuffle_files=shuffle_files,
            decoders=decoders,
            read_config=read_config,
        )
    except ValueError as error:
        if "Unknown split" not in str(error):
            raise
        raise _split_not_found(builder, split) from error
    return (dataset, builder.info) if with_info else dataset


def _require_shards(builder: tfds.core.DatasetBuilder, split: Any) -> None:
    """Sees that the files of splits are there: TensorFlow says so later, and not what to do.

    Raises:
      CorruptShardError: One of them is not.
    """
    if addresses.is_remote(builder.data_dir):
        return  # it costs a request for each
    for one in _flat(list(builder.info.splits) if split is None else split):
        for file in builder.info.splits[one].file_instructions:
            if not Path(file.filename).exists():
                raise missing_shard(file.filename)


def _flat(splits: Any) -> Iterator[Any]:
    """Yields splits, however they are nested."""
    if isinstance(splits, Mapping):
        splits = list(splits.values())
    if not isinstance(splits, (list, tuple)):
        yield splits
        return
    for one in splits:
        yield from _flat(one)


def _split_not_found(
    builder: tfds.core.DatasetBuilder | OnDemandBuilder, split: Any
) -> SplitNotFoundError:
    return SplitNotFoundError(
        explain(
            f"Dataset {builder.info.full_name!r} has no split {split!r}.",
            f"Its splits, in {builder.data_dir}: {', '.join(builder.info.splits)}",
            fix="ask for one of those, or a slice such as 'train[:80%]'",
        )
    )
