"""`my-datasets build`: prepare datasets."""

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import rich_click as click

from my_datasets.cli.imports import import_modules
from my_datasets.cli.output import (
    console,
    data_dir_option,
    human_size,
    json_option,
    print_json,
    quiet_tensorflow,
)
from my_datasets.core import layout
from my_datasets.core.reference import DatasetReference


@click.command("build")
@click.argument("references", metavar="NAME[/CONFIG][:VERSION]...", nargs=-1, required=True)
@data_dir_option
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
@click.option("--download-dir", metavar="DIR", help="Downloads.  [default: <data-dir>/downloads]")
@click.option("--extract-dir", metavar="DIR", help="Extracted archives.")
@click.option("--manual-dir", metavar="DIR", help="Files downloaded by hand.")
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
    help="For builders on Beam: its pipeline options, comma-separated, without --.",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress bars.")
@json_option
def command(
    references: tuple[str, ...], config: str | None, imports: str | None, **options: Any
) -> None:
    """Prepare datasets: download, generate, shuffle and write them as TFRecord shards.

    A version that is already prepared is left as it is. With --overwrite it is built anew beside
    the old one, which stays readable until the new one is whole, and survives a failure.

    Example: my-datasets build digits --data-dir /data --overwrite
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
    from my_datasets.loading import builders_from_code

    for builder in builders_from_code(reference, data_dir=data_dir):
        existed = layout.is_prepared(builder.data_path)
        if existed and fail_if_exists:
            raise click.ClickException(f"{builder.info.full_name} is already prepared.")
        begin = time.monotonic()
        with _progress(quiet or as_json):
            builder.download_and_prepare(
                download_dir=download_dir,
                file_format=file_format,
                download_config=_download_config(overwrite=overwrite, **options),
            )
        result = {
            "dataset": builder.info.full_name,
            "path": str(builder.data_dir),
            "built": overwrite or not existed,
            "seconds": round(time.monotonic() - begin, 3),
            "sample": options["max_examples_per_split"],
            "splits": {name: split.num_examples for name, split in builder.info.splits.items()},
            "bytes": int(builder.info.dataset_size),
        }
        if not as_json:
            _show(result)
        yield result


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
        extract_dir=extract_dir and layout.as_path(extract_dir),
        manual_dir=manual_dir and layout.as_path(manual_dir),
        **options,
    )


@contextlib.contextmanager
def _progress(silent: bool) -> Iterator[None]:
    """Shows TFDS's progress bars and our notes on stderr, or nothing; stdout stays ours."""
    import tensorflow_datasets as tfds

    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    if silent:
        tfds.disable_progress_bar()
    with contextlib.redirect_stdout(sys.stderr):
        yield


def _show(result: dict[str, Any]) -> None:
    out = console()
    done = f"built in {result['seconds']:.1f} s" if result["built"] else "already prepared"
    out.print(f"[bold]{result['dataset']}[/bold]: {done}", soft_wrap=True)
    for name, examples in result["splits"].items():
        out.print(f"  {name}: {examples:,} examples")
    out.print(f"  {human_size(result['bytes'])} in {result['path']}", soft_wrap=True)
    if result["sample"] is not None and result["built"]:
        out.print(
            f"  [yellow]A sample of at most {result['sample']} examples per split stands under "
            f"this version; build it whole with --overwrite.[/yellow]"
        )
