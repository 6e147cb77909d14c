"""`my-datasets export`: a prepared version in a form that tools for tables read."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.options import feature_imports_option
from my_datasets.cli.output import (
    LocalPath,
    data_dir_option,
    echo,
    error_console,
    human_size,
    json_option,
    print_json,
    size,
)
from my_datasets.core import interruption

if TYPE_CHECKING:
    from my_datasets.exporting.parquet import ExportedFile


@click.command("export", short_help="Write a version as Parquet files.")
@click.argument("version", metavar="NAME[/CONFIG][:VERSION]|PATH")
@data_dir_option
@click.option("--to", "form", type=click.Choice(["parquet"]), required=True, help="The form.")
@click.option(
    "--output", metavar="DIR", type=LocalPath(path_type=Path),
    help="Where to.  [default: NAME-VERSION-parquet here]",
)  # fmt: skip
@click.option("--split", "splits", multiple=True, help="Only this split; may be given again.")
@click.option(
    "--binary", multiple=True, metavar="FEATURE", help="Its bytes are no text; may be given again."
)
@click.option("--file-size", default="500M", show_default=True, help="About how large a file is.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier export.")
@feature_imports_option
@json_option
def command(
    version: str, data_dir: str | None, form: str, output: Path | None, splits: tuple[str, ...],
    binary: tuple[str, ...], file_size: str, overwrite: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write a prepared version as Parquet files, in the order of its examples.

    They hold everything: image files as they are, class labels with their names, lists, missing
    values. Beside them are a README.md as Hugging Face's hub has it, and a description for
    Croissant. So datasets.load_dataset(DIR), pandas, DuckDB, Polars and mlcroissant read it. A few
    megabytes are in memory at a time; the directory is there whole or not at all.

    Example: my-datasets export digits --to parquet --output digits-parquet
    """
    del form  # there is one
    from my_datasets.exporting.parquet import export
    from my_datasets.input_pipeline.read.prepared import find

    prepared = find(version, data_dir)
    name = prepared.name.replace("/", "-").replace(":", "-")
    target = output or Path(f"{name}-parquet")

    def complete(directory: Path, files: "Sequence[ExportedFile]") -> None:
        from my_datasets.exporting.descriptions import describe

        describe(prepared, directory, files)

    total = sum(one.length for some in prepared.shards.values() for one in some)
    with interruption.with_note("Nothing was written."), _bar(total) as tell:
        done = export(
            prepared, target, splits=splits or None, binary=binary, file_bytes=size(file_size),
            overwrite=overwrite, complete=complete, report=tell,
        )  # fmt: skip
    if as_json:
        print_json(done.to_json())
        return
    echo(f"{done.name} in {done.path}")
    for one in done.files:
        echo(f"  {one.name}: {one.examples:,} examples, {human_size(one.bytes)}")


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Callable[[str, int, int], None]]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    out = error_console()
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def tell(split: str, done: int, of: int) -> None:
            bar.update(task, description=split, completed=done, total=of)

        yield tell
