"""`my-datasets index`: record indexes for shards that have none."""

from pathlib import Path
from typing import Any

import rich_click as click

from my_datasets.cli.output import LocalPath, console, json_option, print_json
from my_datasets.errors import NotPreparedError
from my_datasets.metadata import layout


@click.command("index")
@click.argument("directory", type=LocalPath(file_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Make those that are there anew, too.")
@json_option
def command(directory: Path, overwrite: bool, as_json: bool) -> None:
    """Make the record index of each TFRecord shard in a version's directory.

    An index says where each record of a shard begins, for random access. It lies beside the shards
    as my_datasets_offsets_HASH.npy. Data that this package builds has indexes; this is for data
    that TFDS built. Shards are read, never changed.

    Example: my-datasets index ~/tensorflow_datasets/mnist/3.0.1
    """
    from my_datasets.records import index

    if not layout.is_prepared(directory):
        raise NotPreparedError(
            f"{directory} is not a prepared version.",
            f"Expected in it: {' and '.join(layout.METADATA_FILES)}",
            fix="name a version's directory, such as my-datasets info shows",
        )
    shards = sorted(directory.glob("*.tfrecord-*-of-?????"))
    results: list[dict[str, Any]] = []
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
