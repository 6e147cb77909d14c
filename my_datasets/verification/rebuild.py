"""Whether a version is reproduced: built again elsewhere, byte for byte."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from my_datasets.builders.base import Builder
from my_datasets.building.options import BuildOptions
from my_datasets.core.issue import Issue
from my_datasets.metadata.content import Content, SplitContent
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.manifest import FILE_NAME, Manifest
from my_datasets.verification.adopt import adopt

_FIX = (
    "build it anew and raise its version, or find out what differs: the code, the input, or a "
    "library that encodes"
)


def rebuild(
    builder: tfds.core.DatasetBuilder,
    version_dir: Path,
    *,
    download_dir: Path,
    report: Callable[[Any], None] | None = None,
) -> Content | None:
    """Builds a prepared version again, as it was built before.

    Args:
      builder: Its builder, with another data directory, where nothing is yet.
      version_dir: The directory of the version that is there.
      download_dir: Where downloads are.
      report: Is told how far it is.

    Returns:
      What is in what was built.

    Raises:
      MyDatasetsError: It cannot be built.
    """
    declared = Declared.read(version_dir)
    made = Manifest.read(version_dir)
    options = dict(made.options) if made else {}
    counts = {len(shards) for shards in declared.splits.values()}
    config = tfds.download.DownloadConfig(
        # Where splits have several numbers, they follow from the sizes, and are the same again.
        num_shards=counts.pop() if len(counts) == 1 else None,
        max_examples_per_split=options.pop("max_examples_per_split", None),
        ignore_duplicates=options.pop("ignore_duplicates", False),
    )
    ours: dict[str, Any] = {}
    if isinstance(builder, Builder):
        ours["build_options"] = BuildOptions(report=report, **options)
    builder.download_and_prepare(
        download_dir=download_dir, download_config=config, file_format=declared.file_format, **ours
    )
    again = Path(builder.data_dir)
    manifest = Manifest.read(again) or adopt(again)
    return manifest.content


def compare(said: Content | None, again: Content | None) -> Iterator[Issue]:
    """Yields where a version that was built again is another one.

    Args:
      said: What is in the version; None if nobody noted it.
      again: What is in the one that was built from the same code and input.
    """
    if said is None or again is None:
        yield Issue(
            "not-rebuilt", FILE_NAME, "There is no manifest to compare with.",
            "my-datasets adopt notes what is in a version of TFDS; the engine of this package "
            "notes it by itself",
        )  # fmt: skip
        return
    if said.schema != again.schema:
        yield Issue(
            "other-features", "features.json", "The features are others when it is built again.",
            _FIX, said.schema[:16], again.schema[:16],
        )  # fmt: skip
    for name in sorted({*said.splits, *again.splits}):
        if name not in said.splits or name not in again.splits:
            where = "before" if name in said.splits else "again"
            yield Issue(
                "other-splits", f"split {name}", f"The split is only in what was built {where}.",
                _FIX,
            )  # fmt: skip
            continue
        yield from _split(name, said.splits[name], again.splits[name])


def _split(name: str, said: SplitContent, again: SplitContent) -> Iterator[Issue]:
    if said.ordered != again.ordered:
        same = said.unordered == again.unordered
        yield Issue(
            "other-order" if same else "other-examples", f"split {name}",
            "The examples come in another order when it is built again." if same else
            "The examples are others when it is built again.",
            _FIX, f"{said.examples:,} examples, digest {said.ordered[:16]}",
            f"{again.examples:,} examples, digest {again.ordered[:16]}",
        )  # fmt: skip
        return
    files = {one.name: one.sha256 for one in said.shards}
    found = {one.name: one.sha256 for one in again.shards}
    if files.keys() != found.keys():
        yield Issue(
            "other-shards", f"split {name}",
            "The examples are the same, in other shards, when it is built again.",
            "build with the same --num-shards or --max-shard-size-mb as before",
            f"{len(files)} shards", f"{len(found)} shards",
        )  # fmt: skip
        return
    for shard, sha256 in files.items():
        if found[shard] != sha256:
            yield Issue(
                "other-bytes", shard,
                "The examples are the same, in other bytes, when it is built again.",
                _FIX, f"SHA-256 {sha256[:16]}", found[shard][:16],
            )  # fmt: skip
