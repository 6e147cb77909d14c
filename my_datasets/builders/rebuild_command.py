"""The command that rebuilds a version, for its manifest."""

import shlex

import tensorflow_datasets as tfds
from tensorflow_datasets.core import file_adapters
from tensorflow_datasets.core.utils import shard_utils

from my_datasets.building.options import BuildOptions

_MIB = 1 << 20
_OURS = "my_datasets"


def command(
    builder: tfds.core.DatasetBuilder,
    config: tfds.download.DownloadConfig,
    options: BuildOptions,
    file_format: str | file_adapters.FileFormat | None = None,
) -> str:
    """Returns the command that rebuilds the same bytes from the same input and code.

    Leaves out options that do not affect the bytes: workers, memory, engine, paths. Also leaves out
    what can only be set from Python: a shard size that is not in whole MiB, and ignoring
    duplicates.

    Args:
      builder: The builder.
      config: TFDS's build options.
      options: This package's build options.
      file_format: The format of the shards, if it differs from that of `builder.info`.
    """
    form = file_adapters.FileFormat.from_value(file_format or builder.info.file_format).value
    name = "/".join(filter(None, (builder.name, builder.builder_config_name)))
    words = ["my-datasets", "build", f"{name}:{builder.version}"]
    module = type(builder).__module__
    # A module typed into an interpreter cannot be imported.
    if module.partition(".")[0] not in (_OURS, "__main__"):
        words += ["--imports", module]
    if form != "tfrecord":
        words += ["--file-format", form]
    if config.num_shards:
        words += ["--num-shards", str(config.num_shards)]
    elif config.max_shard_size not in (None, shard_utils.DEFAULT_MAX_SHARD_SIZE):
        mebibytes, rest = divmod(config.max_shard_size, _MIB)
        words += [] if rest else ["--max-shard-size-mb", str(mebibytes)]
    if options.readers != 1:
        words += ["--readers", str(options.readers)]
    if config.max_examples_per_split is not None:
        words += ["--max-examples-per-split", str(config.max_examples_per_split)]
    if options.splits is not None:
        words += ["--splits", ",".join(sorted(options.splits))]
    if options.on_error == "quarantine":
        words += ["--on-error", "quarantine", "--max-quarantined", str(options.max_quarantined)]
    return shlex.join(words)
