"""`my-datasets build`: prepares datasets."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import rich_click as click

from my_datasets.building.progress import BuildProgress
from my_datasets.cli import options, output
from my_datasets.core.json_types import JsonObject
from my_datasets.core.progress import ignore
from my_datasets.core.reference import DatasetReference
from my_datasets.metadata import layout
from my_datasets.storage import addresses

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

    from my_datasets.builders.remote_build import Destination

_BUILD_OPTIONS = (
    "workers", "max_memory", "resume", "on_error", "max_quarantined", "unit_timeout", "readers",
    "mirrors", "version_gate", "engine",
)  # fmt: skip


@click.command("build")
@click.argument("references", metavar="NAME[/CONFIG][:VERSION]...", nargs=-1, required=True)
@options.data_dir_option_of(options.PathOrAddress("s3", "gs"))
@click.option("--config", "-c", metavar="NAME", help="The builder config, as in NAME/CONFIG.")
@click.option("--overwrite", is_flag=True, help="Rebuild a prepared version and replace it.")
@click.option("--fail-if-exists", is_flag=True, help="Fail if the version is already prepared.")
@click.option(
    "--max-examples-per-split",
    type=click.IntRange(min=1),
    metavar="N",
    help="Build only the first N examples of each split, to try out a builder.",
)
@options.imports_option
@options.download_dir_option
@click.option(
    "--extract-dir",
    metavar="DIR",
    type=options.PathOrAddress("gs"),
    help="Where to extract archives.",
)
@click.option(
    "--manual-dir",
    metavar="DIR",
    type=options.PathOrAddress("gs"),
    help="The directory of files you downloaded by hand.",
)
@options.mirror_option
@click.option("--register-checksums", is_flag=True, help="Record the checksums of downloads.")
@click.option(
    "--force-checksums-validation", is_flag=True, help="Fail if a checksum is not recorded."
)
@click.option(
    "--file-format",
    type=click.Choice(["tfrecord", "array_record", "parquet", "riegeli"]),
    help="The file format of shards.  [default: tfrecord]",
)
@click.option(
    "--num-shards", type=click.IntRange(min=1), metavar="N", help="Number of shards per split."
)
@click.option(
    "--max-shard-size-mb",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="Maximum size of a shard.",
)
@click.option(
    "--nondeterministic-order", is_flag=True,
    help="Do not shuffle: keep the order of generation; faster.",
)  # fmt: skip
@click.option(
    "--beam-pipeline-options",
    metavar="OPTIONS",
    help="Beam pipeline options as for tfds build: comma-separated, without --.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "beam"]),
    default="local",
    show_default=True,
    help="Build with local processes, or with the workers of a Beam runner.",
)
@click.option(
    "--beam-option",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A Beam pipeline option, such as runner=dask. Repeatable.",
)
@click.option("--splits", metavar="NAMES", help="Build only these splits, comma-separated.")
@options.workers_option
@options.max_memory_option
@options.resume_option
@click.option(
    "--on-error",
    type=click.Choice(["fail", "quarantine"]),
    help="Examples that do not match the features: fail, or write them to quarantine.jsonl.  "
    "[default: the builder's choice, else fail]",
)
@options.max_quarantined_option
@click.option(
    "--unit-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Fail if a worker reports nothing for this long.",
)
@click.option(
    "--readers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="HOSTS",
    help="Number of hosts that will read in parallel; each gets about ten shards.",
)
@options.version_gate_option()
@options.quiet_option
@options.json_option
def command(
    references: tuple[str, ...], config: str | None, imports: str | None, **how: Any
) -> None:
    """Prepare datasets: download, generate, shuffle and write them as TFRecord shards.

    Versions that are already prepared are skipped. With --overwrite, a version is rebuilt; the old
    data stays readable until the new data is complete, and survives a failed build. An interrupted
    build is resumed by running the same command again. With --engine beam, other machines build
    the same bytes: add --beam-option runner=dask, and see docs/scaling.md. The data directory may
    be in an object store: s3://BUCKET/FOLDER or gs://BUCKET/FOLDER.

    Example: my-datasets build digits --data-dir /data --workers 8 --max-memory 4G
    """
    parsed = [DatasetReference.parse(text) for text in references]
    for reference in parsed:
        if config and reference.config:
            raise click.UsageError(f"{reference} already names a config; leave out --config.")
    output.quiet_tensorflow()
    options.import_modules(imports)
    results: list[JsonObject] = []
    for reference in parsed:
        results += _build(replace(reference, config=config or reference.config), **how)
    if how["as_json"]:
        output.print_json(results)


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
    **others: Any,
) -> Iterator[JsonObject]:
    from my_datasets.building.options import BuildOptions

    splits = others.pop("splits")
    how = {
        "splits": tuple(filter(None, splits.split(","))) if splits else None,
        "beam_options": _beam_options(others.pop("beam_option")),
        **{name: others.pop(name) for name in _BUILD_OPTIONS},
    }
    for builder, destination in _targets(reference, data_dir):
        existed = (
            destination.is_prepared() if destination else layout.is_prepared(builder.data_path)
        )
        if existed and fail_if_exists:
            raise click.ClickException(f"{builder.info.full_name} is already prepared.")
        begin = time.monotonic()
        our_options: dict[str, Any] = {}
        with _progress(quiet or as_json) as report:
            if hasattr(builder, "units"):  # not one of TFDS's own builders
                url = destination.url if destination else None
                our_options["build_options"] = BuildOptions(report=report, destination=url, **how)
            builder.download_and_prepare(
                download_dir=download_dir,
                file_format=file_format,
                download_config=_download_config(overwrite=overwrite, **others),
                **our_options,
            )
        result = {
            "dataset": builder.info.full_name,
            "path": str(destination or builder.data_dir),
            "built": overwrite or not existed,
            "seconds": round(time.monotonic() - begin, 3),
            "sample": others["max_examples_per_split"],
            "splits": {name: split.num_examples for name, split in builder.info.splits.items()},
            "bytes": int(builder.info.dataset_size),
        }
        if not as_json:
            _show(result)
        yield result


def _targets(
    reference: DatasetReference, data_dir: str | None
) -> Iterator[tuple["tfds.core.DatasetBuilder", "Destination | None"]]:
    """Yields builders, with the destination of their versions if it is in an object store."""
    from my_datasets.builders import remote_build
    from my_datasets.builders.find_builder import builders_from_code
    from my_datasets.core.reference import reference_to

    if data_dir is None or not addresses.is_remote(data_dir):
        yield from ((one, None) for one in builders_from_code(reference, data_dir=data_dir))
        return
    for builder in builders_from_code(reference, data_dir=remote_build.scratch_of(data_dir)):
        if hasattr(builder, "units"):
            yield builder, remote_build.destination_of(builder, data_dir)
        else:  # TFDS builds it there itself
            of_tfds = DatasetReference.parse(reference_to(builder))
            yield from ((one, None) for one in builders_from_code(of_tfds, data_dir=data_dir))


def _beam_options(given: Iterable[str]) -> JsonObject:
    """Returns Beam options by name; repeated ones become a list."""
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
    **others: Any,
) -> Any:
    import tensorflow_datasets as tfds

    modes = tfds.download.GenerateMode
    if max_shard_size_mb:
        others["max_shard_size"] = max_shard_size_mb << 20
    if beam_pipeline_options:
        from apache_beam.options.pipeline_options import PipelineOptions

        flags = [f"--{option}" for option in beam_pipeline_options.split(",")]
        others["beam_options"] = PipelineOptions(flags=flags)
    return tfds.download.DownloadConfig(
        download_mode=modes.REUSE_CACHE_IF_EXISTS if overwrite else modes.REUSE_DATASET_IF_EXISTS,
        extract_dir=extract_dir and addresses.as_path(extract_dir),
        manual_dir=manual_dir and addresses.as_path(manual_dir),
        **others,
    )


@contextlib.contextmanager
def _progress(silent: bool) -> Iterator[Callable[[BuildProgress], None]]:
    """Shows progress on stderr, unless silent, and redirects other output there."""
    import tensorflow_datasets as tfds

    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    if silent:
        tfds.disable_progress_bar()
    with contextlib.redirect_stdout(sys.stderr):
        if silent:
            yield ignore
        elif sys.stderr.isatty():
            with output.console(stderr=True).status("starting") as status:
                yield lambda progress: status.update(str(progress))
        else:
            yield output.log_lines()


def _show(result: JsonObject) -> None:
    out = output.console()
    done = f"built in {result['seconds']:.1f} s" if result["built"] else "already prepared"
    out.print(output.bold(result["dataset"]), f": {done}", sep="", soft_wrap=True)
    for name, examples in result["splits"].items():
        out.print(f"  {name}: {examples:,} examples")
    out.print(f"  {output.human_size(result['bytes'])} in {result['path']}", soft_wrap=True)
    if result["sample"] is not None and result["built"]:
        out.print(
            f"  This version has only a sample of at most {result['sample']} examples per split; "
            "build all of it with --overwrite.",
            style="yellow",
        )
