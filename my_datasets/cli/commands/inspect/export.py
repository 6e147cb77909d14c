"""`my-datasets export`: writes a prepared version as Parquet files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core import interruption

if TYPE_CHECKING:
    from my_datasets.exporting.parquet import ExportedFile


@click.command("export", short_help="Write a version as Parquet files.")
@click.argument("version", metavar="NAME[/CONFIG][:VERSION]|PATH")
@options.data_dir_option
@click.option("--to", "form", type=click.Choice(["parquet"]), required=True, help="The format.")
@click.option(
    "--output", "output_dir", metavar="DIR", type=options.LocalPath(path_type=Path),
    help="The output directory.  [default: NAME-VERSION-parquet]",
)  # fmt: skip
@click.option("--split", "splits", multiple=True, help="Export only this split. Repeatable.")
@click.option(
    "--binary",
    multiple=True,
    metavar="FEATURE",
    help="Export this feature as bytes, not text. Repeatable.",
)
@click.option(
    "--file-size", type=options.size, default="500M", show_default=True, metavar="TEXT",
    help="Approximate size of a file.",
)  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace an earlier export.")
@options.feature_imports_option
@options.json_option
def command(
    version: str, data_dir: str | None, form: str, output_dir: Path | None, splits: tuple[str, ...],
    binary: tuple[str, ...], file_size: int, overwrite: bool, as_json: bool,
) -> None:  # fmt: skip
    """Export a prepared version as Parquet files, keeping the order of its examples.

    Nothing is lost: image files stay as they are, class labels keep their names, and lists and
    missing values are supported. The export also has a README.md for the Hugging Face Hub and a
    Croissant description, so datasets.load_dataset(DIR), pandas, DuckDB, Polars and mlcroissant
    can read it. It uses a few megabytes of memory, and the directory appears only when complete.

    Example: my-datasets export digits --to parquet --output digits-parquet
    """
    del form  # there is only one
    from my_datasets.exporting.parquet import export
    from my_datasets.input_pipeline.read.prepared import find

    prepared = find(version, data_dir)
    name = prepared.name.replace("/", "-").replace(":", "-")
    target = output_dir or Path(f"{name}-parquet")

    def complete(directory: Path, files: "Sequence[ExportedFile]") -> None:
        from my_datasets.exporting.descriptions import describe

        describe(prepared, directory, files)

    with interruption.with_note("Nothing was written."), output.progress_bar() as report:
        done = export(
            prepared, target, splits=splits or None, binary=binary, file_bytes=file_size,
            overwrite=overwrite, complete=complete, report=report,
        )  # fmt: skip
    if as_json:
        output.print_json(done.to_json())
        return
    output.echo(f"{done.name} in {done.path}")
    for one in done.files:
        output.echo(f"  {one.name}: {one.examples:,} examples, {output.human_size(one.bytes)}")
