"""Converts a builder's declarations to an engine job, and the results to what TFDS records.

It also has what such a build shows and records: TFDS's progress bar, and the command that rebuilds
the version.
"""

import functools
import hashlib
import inspect
import itertools
import os
import shlex
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core import file_adapters, naming, utils
from tensorflow_datasets.core.download import checksums
from tensorflow_datasets.core.utils import shard_utils

from my_datasets._version import __version__
from my_datasets.builders.code_fingerprint import listed
from my_datasets.builders.encode.encoder import ExampleEncoder
from my_datasets.building import shards
from my_datasets.building.options import BuildOptions, Job, SplitResult, WriteShard
from my_datasets.building.progress import BuildProgress
from my_datasets.building.units import SplitInput, Units
from my_datasets.core.logs import get_logger
from my_datasets.errors import BuilderError, SplitNotFoundError

_MIB = 1 << 20
_LOGGER = get_logger(__name__)
# Records per row group of a Parquet shard: a few MB for records of usual size.
_PARQUET_BATCH = 1000
# Formats that this package's engine writes. TFDS writes the others: those whose positions it
# records itself, and those that this package does not know.
ENGINE_FORMATS = frozenset(
    {
        file_adapters.FileFormat.TFRECORD,
        file_adapters.FileFormat.ARRAY_RECORD,
        file_adapters.FileFormat.PARQUET,
    }
)


class ProgressBar:
    """Shows a build's progress; `tfds.disable_progress_bar()` also disables it."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._stage = ""
        self._shown = 0

    def __call__(self, progress: BuildProgress) -> None:
        """Updates the bar."""
        if progress.stage != self._stage:
            self.close()
            self._stage, self._shown = progress.stage, 0
            in_bytes = progress.expected_bytes is not None
            self._bar = utils.tqdm(
                total=progress.expected_bytes if in_bytes else None,
                desc=f"{progress.stage.capitalize()} examples",
                unit="B" if in_bytes else " examples",
                unit_scale=True,
                leave=False,
            )
        done = progress.bytes if progress.expected_bytes is not None else progress.examples
        self._bar.set_postfix_str(f"{progress.split} {progress.units_done}/{progress.units} units")
        self._bar.update(done - self._shown)
        self._shown = done

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()


def rebuild_command(
    builder: tfds.core.DatasetBuilder,
    config: tfds.download.DownloadConfig,
    options: BuildOptions,
    file_format: str | file_adapters.FileFormat | None = None,
) -> str:
    """Returns the command that rebuilds the same bytes from the same input and code.

    Leaves out options that do not affect the bytes: workers, memory, engine, paths. Also leaves out
    what can only be set from Python: a shard size that is not in whole MiB, and ignoring
    duplicates. `file_format` is needed only if it differs from that of `builder.info`.
    """
    form = file_adapters.FileFormat.from_value(file_format or builder.info.file_format).value
    name = "/".join(filter(None, (builder.name, builder.builder_config_name)))
    words = ["my-datasets", "build", f"{name}:{builder.version}"]
    module = type(builder).__module__
    # A module typed into an interpreter cannot be imported.
    if module.partition(".")[0] not in ("my_datasets", "__main__"):
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


def split_inputs(generators: object, builder: tfds.core.DatasetBuilder) -> list[SplitInput]:
    """Converts what `_split_generators` returned to the engine's input.

    It is a dict from split names to generators, `Units`, or Beam transforms or collections; or
    TFDS's older list of `SplitGenerator`s.

    Raises:
      BuilderError: It is something else.
    """
    if (
        isinstance(generators, Sequence)
        and not isinstance(generators, str)
        and all(isinstance(item, tfds.core.SplitGenerator) for item in generators)
    ):
        generate = builder._generate_examples
        if isinstance(builder, tfds.core.BeamBasedBuilder) or hasattr(
            builder, "_build_pcollection"
        ):
            # Its first argument is a pipeline.
            import apache_beam

            generate = apache_beam.ptransform_fn(generate)
        generators = {str(item.name): generate(**item.gen_kwargs) for item in generators}
    if not isinstance(generators, Mapping) or not generators:
        raise BuilderError(
            f"_split_generators of {builder.name!r} returned {_shortly(generators)}.",
            "Expected a dict such as {'train': self._generate_examples(path)}",
            fix="return a dict with a generator, or self.units(...), for each split",
        )
    inputs = []
    for name, generator in generators.items():
        if str(name).lower() == "all":
            raise BuilderError(
                f"A split of {builder.name!r} is called {name!r}, which TFDS keeps for all splits.",
                fix="give the split another name",
            )
        if isinstance(generator, Units):
            inputs.append(SplitInput(str(name), generator))
        elif _is_of_beam(generator):
            inputs.append(SplitInput(str(name), Units(iter, ()), collection=generator))
        elif isinstance(generator, Iterable):
            inputs.append(SplitInput(str(name), Units(iter, [generator]), is_plain=True))
        else:
            raise BuilderError(
                f"The split {name!r} of {builder.name!r} is a {type(generator).__name__}.",
                "Expected a generator of (key, example) pairs, self.units(...), or a Beam "
                "transform",
                fix="make sure that _generate_examples yields, and is called",
            )
    return inputs


def _is_of_beam(generator: object) -> bool:
    """Returns whether it is a `PCollection` or `PTransform`, without importing Beam."""
    return any(kind.__module__.partition(".")[0] == "apache_beam" for kind in type(generator).mro())


def _shortly(value: object) -> str:
    is_short = value is None or value == {} or isinstance(value, (str, int))
    return repr(value) if is_short else f"a {type(value).__name__}"


def splits_to_build(inputs: Sequence[SplitInput], options: BuildOptions) -> list[SplitInput]:
    """Returns the splits to build.

    Raises:
      SplitNotFoundError: A requested split does not exist.
    """
    if options.splits is None:
        return list(inputs)
    names = [item.name for item in inputs]
    missing = [name for name in options.splits if name not in names]
    if missing:
        raise SplitNotFoundError(
            f"There is no split {', '.join(missing)}.",
            f"Splits of this dataset: {', '.join(names)}",
            fix="choose from those with --splits",
        )
    return [item for item in inputs if item.name in options.splits]


def job(
    inputs: Sequence[SplitInput],
    info: tfds.core.DatasetInfo,
    config: tfds.download.DownloadConfig,
    options: BuildOptions,
    shard_name: Callable[[str, int, int], str],
) -> Job:
    """Returns the engine's job for a builder's splits."""
    ordered = info.disable_shuffling
    if config.nondeterministic_order and not ordered:
        _LOGGER.warning("nondeterministic_order: examples stay in the order of generation.")
        ordered = True
    return Job(
        inputs=inputs,
        encoder=ExampleEncoder(info.features),
        ordered=ordered,
        ignore_duplicates=config.ignore_duplicates,
        max_examples=config.max_examples_per_split,
        number_of_shards=_number_of_shards(config, options),
        shard_name=shard_name,
        write_shard=_write_shard(info.file_format),
    )


def work_identity(
    job: Job,
    config: tfds.download.DownloadConfig,
    options: BuildOptions,
    fingerprint: Mapping[str, str],
    form: str,
    *,
    downloads: Mapping[str, checksums.UrlInfo],
    manual_dir: epath.Path | None,
) -> dict[str, object]:
    """Returns everything that finished units and shards depend on, for the journal."""
    return {
        # Other releases may encode, sort or name files differently.
        "software": {"my_datasets": __version__, "journal": 5, "zlib": zlib.ZLIB_RUNTIME_VERSION},
        "fingerprint": dict(fingerprint),
        "options": {
            "file_format": form,
            "max_examples_per_split": config.max_examples_per_split,
            "ignore_duplicates": config.ignore_duplicates,
            "on_error": options.on_error,
            "ordered": job.ordered,
        },
        "input": {item.name: _identities(item) for item in job.inputs},
        "downloads": listed(downloads),
        # Units identify their own files; what a generator or a collection reads is unknown.
        "manual files": _manual_files(manual_dir)
        if any(item.is_plain or item.collection is not None for item in job.inputs)
        else "",
    }


def split_infos(
    results: Sequence[SplitResult], template: Callable[[str], naming.ShardedFileTemplate]
) -> tfds.core.splits.SplitDict:
    """Returns TFDS's record of the splits."""
    return tfds.core.splits.SplitDict(
        [
            tfds.core.SplitInfo(
                name=result.name,
                shard_lengths=[shard.examples for shard in result.shards],
                num_bytes=result.num_bytes,
                filename_template=template(result.name),
            )
            for result in results
        ]
    )


def wants_beam(split_generators: Callable[..., object]) -> bool:
    """Returns whether a builder's `_split_generators` asks TFDS for a Beam pipeline."""
    return "pipeline" in inspect.signature(split_generators).parameters


def _manual_files(directory: epath.Path | None) -> str:
    """Returns a hash of the paths, sizes and modification times of manually downloaded files."""
    if directory is None or not directory.is_dir():
        return ""
    found = hashlib.sha256()
    for parent, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            path = Path(parent, name)
            try:
                stat = path.stat()
            except OSError:
                continue  # a dangling link
            line = f"{path.relative_to(directory)}\0{stat.st_size} {stat.st_mtime_ns}\n"
            found.update(line.encode(errors="surrogateescape"))
    return found.hexdigest()


def _identities(item: SplitInput) -> list[str]:
    if item.collection is not None:
        return ["Beam collection"]
    return ["plain generator"] if item.is_plain else item.units.identities()


def _number_of_shards(
    config: tfds.download.DownloadConfig, options: BuildOptions
) -> Callable[[int, int], int]:
    tfds_defaults = (shard_utils.DEFAULT_MIN_SHARD_SIZE, shard_utils.DEFAULT_MAX_SHARD_SIZE)
    if config.num_shards or (config.min_shard_size, config.max_shard_size) != tfds_defaults:
        number: Callable[[int, int], int] = config.get_shard_config().get_number_shards
        return number
    return lambda size, count: shards.number_of_shards(size, count, options.readers)


def _write_shard(form: file_adapters.FileFormat) -> WriteShard | None:
    if form == file_adapters.FileFormat.TFRECORD:
        return None
    if form == file_adapters.FileFormat.PARQUET:
        return _write_parquet
    return functools.partial(_write_by_tfds, form)


def _write_by_tfds(
    form: file_adapters.FileFormat, path: Path, examples: Iterable[tuple[int, bytes]]
) -> None:
    # Found here, in the process that writes: Beam cannot pickle the adapters' methods.
    file_adapters.ADAPTER_FOR_FORMAT[form].write_examples(path, examples)


def _write_parquet(path: Path, examples: Iterable[tuple[int, bytes]]) -> None:
    """Writes a shard as TFDS's Parquet adapter reads it: records in a binary column `data`.

    TFDS 4.9.10's own writer cannot be used: it skips ever more records after the first hundred of a
    shard, because it slices an iterator as if it were a list.
    """
    schema = pa.schema({"data": pa.binary()})
    rest = iter(examples)
    with pq.ParquetWriter(path, schema=schema, write_page_checksum=True) as writer:
        while batch := [record for _, record in itertools.islice(rest, _PARQUET_BATCH)]:
            writer.write_batch(
                pa.RecordBatch.from_arrays([pa.array(batch, pa.binary())], schema=schema)
            )
