"""`my-datasets build`: prepare datasets."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import rich_click as click

from my_datasets.building.progress import BuildProgress
from my_datasets.cli.options import (
    import_modules,
    max_quarantined_option,
    mirror_option,
    version_gate_option,
)
from my_datasets.cli.output import (
    PathOrAddress,
    bold,
    console,
    data_dir_option_of,
    echo,
    error_console,
    human_size,
    json_option,
    print_json,
    quiet_tensorflow,
    size,
    workers_option,
)
from my_datasets.core.reference import DatasetReference
from my_datasets.metadata import layout
from my_datasets.storage import addresses

if TYPE_CHECKING:
    from my_datasets.builders.remote_build import Destination

_LOG_EVERY_SECONDS = 10.0
_BUILD_OPTIONS = (
    "workers",
    "max_memory",
    "resume",
    "on_error",
    "max_quarantined",
    "unit_timeout",
    "readers",
    "mirrors",
    "version_gate",
    "engine",
)


@click.command("build")
@click.argument("references", metavar="NAME[/CONFIG][:VERSION]...", nargs=-1, required=True)
@data_dir_option_of(PathOrAddress("s3", "gs"))
@click.option("--config", "-c", metavar="NAME", help="The builder config, as in NAME/CONFIG.")
@click.option("--overwrite", is_flag=True, help="Build beside the prepared version, then swap.")
@click.option("--fail-if-exists", is_flag=True, help="Fail if the version is already prepared.")
@click.option(
    "--max-examples-per-split",
    type=click.IntRange(min=1),
    metavar="N",
    help="Build only the first N examples of each split, to try a builder out.",
)
@click.option("--imports", metavar="MODULES", help="Modules to import first, comma-separated.")
@click.option(
    "--download-dir",
    metavar="DIR",
    type=PathOrAddress("gs"),
    help="Downloads.  [default: <data-dir>/downloads]",
)
@click.option("--extract-dir", metavar="DIR", type=PathOrAddress("gs"), help="Extracted archives.")
@click.option(
    "--manual-dir", metavar="DIR", type=PathOrAddress("gs"), help="Files downloaded by hand."
)
@mirror_option
@click.option("--register-checksums", is_flag=True, help="Record the downloads' checksums.")
@click.option("--force-checksums-validation", is_flag=True, help="Fail on unrecorded checksums.")
@click.option(
    "--file-format",
    type=click.Choice(["tfrecord", "array_record", "parquet", "riegeli"]),
    help="Format of the shards.  [default: tfrecord]",
)
@click.option("--num-shards", type=click.IntRange(min=1), metavar="N", help="Shards per split.")
@click.option(
    "--max-shard-size-mb", type=click.IntRange(min=1), metavar="MIB", help="Largest shard."
)
@click.option("--nondeterministic-order", is_flag=True, help="Faster, in any order.")
@click.option(
    "--beam-pipeline-options",
    metavar="OPTIONS",
    help="As for tfds build: options of Beam's pipelines, comma-separated, without --.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "beam"]),
    default="local",
    show_default=True,
    help="Build with this machine's processes, or where a Beam runner has workers.",
)
@click.option(
    "--beam-option",
    "beam_option",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="An option of Beam's pipelines, such as runner=dask. May be given again.",
)
@click.option(
    "--splits", metavar="NAMES", help="Only these splits, comma-separated: train,validation."
)
@workers_option
@click.option(
    "--max-memory",
    type=size,
    metavar="SIZE",
    help="Memory for the data, of all processes together, such as 500M or 4G.  "
    "[default: 2G, or a quarter of the machine's]",
)
@click.option(
    "--resume/--restart",
    default=True,
    help="Go on with an unfinished build of the same, or start anew.  [default: resume]",
)
@click.option(
    "--on-error",
    type=click.Choice(["fail", "quarantine"]),
    help="Examples that do not fit the features: fail, or set them aside in quarantine.jsonl.  "
    "[default: what the builder says, else fail]",
)
@max_quarantined_option
@click.option(
    "--unit-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up on a worker that is silent for so long.",
)
@click.option(
    "--readers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="HOSTS",
    help="Hosts that will read at the same time: about ten shards for each.",
)
@version_gate_option
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@json_option
def command(
    references: tuple[str, ...], config: str | None, imports: str | None, **options: Any
) -> None:
    """Prepare datasets: download, generate, shuffle and write them as TFRecord shards.

    A version that is already prepared is left as it is. With --overwrite it is built anew beside
    the old one, which stays readable until the new one is whole, and survives a failure. A build
    that was killed goes on where it was when the same command is run again. With --engine beam the
    same bytes are made on other machines: --beam-option runner=dask, and see docs/scaling.md. The
    data directory may be in an object store: s3://BUCKET/FOLDER or gs://BUCKET/FOLDER.

    Example: my-datasets build digits --data-dir /data --workers 8 --max-memory 4G
    """
    parsed = [_with_config(DatasetReference.parse(text), config) for text in references]
    quiet_tensorflow()
    import_modules(imports)
    results = [result for reference in parsed for result in _build(reference, **options)]
    if options["as_json"]:
        print_json(results)


def _with_config(reference: DatasetReference, config: str | None) -> DatasetReference:
    if config and reference.config:
        raise click.UsageError(f"{reference} names a config already; leave out --config.")
    return replace(reference, config=config) if config else reference


def _build(
    reference: DatasetReference,
    *,
    data_dir: str | None,
    overwrite: bool,
    fail_if_exists: bool,
    quiet: bool,
    as_json: bool,
    file_format: str | None,
    download_dir: str | None,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    from my_datasets.building.options import BuildOptions

    splits = options.pop("splits")
    how = {
        "splits": tuple(filter(None, splits.split(","))) if splits else None,
        "beam_options": _beam_options(options.pop("beam_option")),
        **{name: options.pop(name) for name in _BUILD_OPTIONS},
    }
    for builder, destination in _targets(reference, data_dir):
        existed = (
            destination.is_prepared() if destination else layout.is_prepared(builder.data_path)
        )
        if existed and fail_if_exists:
            raise click.ClickException(f"{builder.info.full_name} is already prepared.")
        begin = time.monotonic()
        ours: dict[str, Any] = {}
        with _progress(quiet or as_json) as report:
            if hasattr(builder, "units"):  # one of TFDS's own builders takes no options of ours
                url = destination.url if destination else None
                ours["build_options"] = BuildOptions(report=report, destination=url, **how)
            builder.download_and_prepare(
                download_dir=download_dir,
                file_format=file_format,
                download_config=_download_config(overwrite=overwrite, **options),
                **ours,
            )
        result = {
            "dataset": builder.info.full_name,
            "path": str(destination or builder.data_dir),
            "built": overwrite or not existed,
            "seconds": round(time.monotonic() - begin, 3),
            "sample": options["max_examples_per_split"],
            "splits": {name: split.num_examples for name, split in builder.info.splits.items()},
            "bytes": int(builder.info.dataset_size),
        }
        if not as_json:
            _show(result)
        yield result


def _targets(
    reference: DatasetReference, data_dir: str | None
) -> Iterator[tuple[Any, "Destination | None"]]:
    """Yields builders, and where their versions come to lie if that is an object store."""
    from my_datasets.builders import remote_build
    from my_datasets.builders.find_builder import builders_from_code
    from my_datasets.core.reference import reference_to

    if data_dir is None or not addresses.is_remote(data_dir):
        yield from ((one, None) for one in builders_from_code(reference, data_dir=data_dir))
        return
    for builder in builders_from_code(reference, data_dir=remote_build.scratch_of(data_dir)):
        if hasattr(builder, "units"):
            yield builder, remote_build.destination_of(builder, data_dir)
        else:  # which TFDS itself builds there
            of_tfds = DatasetReference.parse(reference_to(builder))
            yield from ((one, None) for one in builders_from_code(of_tfds, data_dir=data_dir))


def _beam_options(given: Iterable[str]) -> dict[str, Any]:
    """Returns options of Beam's by name; one that is given again is a list."""
    found: dict[str, Any] = {}
    for option in given:
        name, is_set, value = option.removeprefix("--").partition("=")
        new: Any = value if is_set else True
        if name in found:
            before = found[name] if isinstance(found[name], list) else [found[name]]
            new = [*before, new]
        found[name] = new
    return found


def _download_config(
    *,
    overwrite: bool,
    extract_dir: str | None,
    manual_dir: str | None,
    max_shard_size_mb: int | None,
    beam_pipeline_options: str | None,
    **options: Any,
) -> Any:
    import tensorflow_datasets as tfds

    modes = tfds.download.GenerateMode
    mode = modes.REUSE_CACHE_IF_EXISTS if overwrite else modes.REUSE_DATASET_IF_EXISTS
    if max_shard_size_mb:
        options["max_shard_size"] = max_shard_size_mb << 20
    if beam_pipeline_options:
        from apache_beam.options.pipeline_options import PipelineOptions

        flags = [f"--{option}" for option in beam_pipeline_options.split(",")]
        options["beam_options"] = PipelineOptions(flags=flags)
    return tfds.download.DownloadConfig(
        download_mode=mode,
        extract_dir=extract_dir and addresses.as_path(extract_dir),
        manual_dir=manual_dir and addresses.as_path(manual_dir),
        **options,
    )


@contextlib.contextmanager
def _progress(silent: bool) -> Iterator[Callable[[BuildProgress], None]]:
    """Shows progress and our notes on stderr, or nothing; stdout stays ours.

    Yields:
      What the engine tells its progress to: a moving line on a terminal, lines in a log file.
    """
    import tensorflow_datasets as tfds

    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    if silent:
        tfds.disable_progress_bar()
    with contextlib.redirect_stdout(sys.stderr):
        if silent:
            yield lambda _: None
        elif sys.stderr.isatty():
            with error_console().status("starting") as status:
                yield lambda progress: status.update(str(progress))
        else:
            yield _LogLines()


class _LogLines:
    """Prints the progress line by line: each stage's first, then one every ten seconds."""

    def __init__(self) -> None:
        self._stage = ""
        self._told = 0.0

    def __call__(self, progress: BuildProgress) -> None:
        now = time.monotonic()
        if progress.stage != self._stage or now - self._told >= _LOG_EVERY_SECONDS:
            self._stage, self._told = progress.stage, now
            echo(str(progress), err=True)


def _show(result: dict[str, Any]) -> None:
    out = console()
    done = f"built in {result['seconds']:.1f} s" if result["built"] else "already prepared"
    out.print(bold(result["dataset"]), f": {done}", sep="", soft_wrap=True)
    for name, examples in result["splits"].items():
        out.print(f"  {name}: {examples:,} examples")
    out.print(f"  {human_size(result['bytes'])} in {result['path']}", soft_wrap=True)
    if result["sample"] is not None and result["built"]:
        out.print(
            f"  A sample of at most {result['sample']} examples per split stands under this "
            "version; build it whole with --overwrite.",
            style="yellow",
        )
