"""`my-datasets adopt` and `my-datasets index`: add a manifest or record indexes to data of TFDS."""

from pathlib import Path

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core.json_types import JsonObject
from my_datasets.errors import NotPreparedError
from my_datasets.metadata import layout


@click.command("adopt")
@click.argument("directory", type=options.LocalPath(file_okay=False, path_type=Path))
@options.feature_imports_option
@options.json_option
def adopt_command(directory: Path, as_json: bool) -> None:
    """Write a manifest for a version that plain TFDS prepared, so that later changes are detected.

    Reads each record once, and fails on a damaged shard. Writes nothing but the manifest.

    Example: my-datasets adopt ~/tensorflow_datasets/mnist/3.0.1
    """
    from my_datasets.verification.adopt import adopt

    content = adopt(directory).content
    if content is None:
        return
    if as_json:
        output.print_json({"directory": str(directory), **content.to_json()})
        return
    out = output.console()
    for name, split in content.splits.items():
        out.print(f"split {name}: {split.examples:,} examples in {len(split.shards)} shards")
    out.print(f"digest {content.digest}", soft_wrap=True)


@click.command("index")
@click.argument("directory", type=options.LocalPath(file_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Also recreate existing indexes.")
@options.json_option
def index_command(directory: Path, overwrite: bool, as_json: bool) -> None:
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
        output.print_json({"directory": str(directory), "shards": results})
        return
    new = sum(result["made"] for result in results)
    output.console().print(
        f"{len(results)} shards, {new} indexed now, in {directory}", soft_wrap=True
    )
