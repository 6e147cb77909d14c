"""`my-datasets index`: creates missing record indexes."""

from pathlib import Path

import rich_click as click

from my_datasets.cli.output import LocalPath, console, json_option, print_json
from my_datasets.core.json_types import JsonObject
from my_datasets.errors import NotPreparedError
from my_datasets.metadata import layout


@click.command("index")
@click.argument("directory", type=LocalPath(file_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Also recreate existing indexes.")
@json_option
def command(directory: Path, overwrite: bool, as_json: bool) -> None:
    """Create a record index for each TFRecord shard in a version's directory.

    An index lists where each record of a shard begins, for random access. It is stored beside the
    shards as my_datasets_offsets_HASH.npy. Data built by this package already has indexes; use
    this command for data built by TFDS. Shards are not changed.

    Example: my-datasets index ~/tensorflow_datasets/mnist/3.0.1
    """
    from my_datasets.records import index

    if not layout.is_prepared(directory):
        raise NotPreparedError(
            f"{directory} is not a prepared version.",
            f"Expected in it: {' and '.join(layout.METADATA_FILES)}",
            fix="name a version's directory, as shown by my-datasets info",
        )
    shards = sorted(directory.glob("*.tfrecord-*-of-?????"))
    results: list[JsonObject] = []
    for shard in shards:
        made = overwrite or not index.path_of(shard).exists()
        offsets = index.scan(shard) if made else index.read(shard)
        if made:
            index.write(shard, offsets)
        beside = index.path_of(shard).name
        results.append(
            {"shard": shard.name, "index": beside, "records": len(offsets) - 1, "made": made}
        )
    if as_json:
        print_json({"directory": str(directory), "shards": results})
        return
    new = sum(result["made"] for result in results)
    console().print(f"{len(results)} shards, {new} indexed now, in {directory}", soft_wrap=True)
