"""`my-datasets adopt`: writes a manifest for data that plain TFDS prepared."""

from pathlib import Path

import rich_click as click

from my_datasets.cli.options import feature_imports_option
from my_datasets.cli.output import LocalPath, console, json_option, print_json


@click.command("adopt")
@click.argument("directory", type=LocalPath(file_okay=False, path_type=Path))
@feature_imports_option
@json_option
def command(directory: Path, as_json: bool) -> None:
    """Write a manifest for a version that plain TFDS prepared, so that later changes are detected.

    Reads each record once, and fails on a damaged shard. Writes nothing but the manifest.

    Example: my-datasets adopt ~/tensorflow_datasets/mnist/3.0.1
    """
    from my_datasets.verification.adopt import adopt

    content = adopt(directory).content
    if content is None:
        return
    if as_json:
        print_json({"directory": str(directory), **content.to_json()})
        return
    out = console()
    for name, split in content.splits.items():
        out.print(f"split {name}: {split.examples:,} examples in {len(split.shards)} shards")
    out.print(f"digest {content.digest}", soft_wrap=True)
