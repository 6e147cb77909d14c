"""Rebuilds a version elsewhere, and compares it byte for byte."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from my_datasets.builders.base import Builder
from my_datasets.building.options import BuildOptions
from my_datasets.building.progress import BuildProgress
from my_datasets.core.issue import Issue
from my_datasets.metadata.content import Content, SplitContent
from my_datasets.metadata.dataset_info import Declared
from my_datasets.metadata.manifest import FILE_NAME, Manifest
from my_datasets.verification.adopt import adopt

_FIX = (
    "rebuild it with a higher version, or find out what differs: the code, the input, or an "
    "encoding library"
)


def rebuild(
    builder: tfds.core.DatasetBuilder,
    version_dir: Path,
    *,
    download_dir: Path,
    report: Callable[[BuildProgress], None] | None = None,
) -> Content | None:
    """Rebuilds a prepared version with its original options.

    `builder` has an empty data directory. Returns the content of the new version.

    Raises:
      MyDatasetsError: The build fails.
    """
    declared = Declared.read(version_dir)
    manifest = Manifest.read(version_dir)
    options = dict(manifest.options) if manifest else {}
    counts = {len(shards) for shards in declared.splits.values()}
    config = tfds.download.DownloadConfig(
        # Numbers that differ between splits follow from their sizes.
        num_shards=counts.pop() if len(counts) == 1 else None,
        max_examples_per_split=options.pop("max_examples_per_split", None),
        ignore_duplicates=options.pop("ignore_duplicates", False),
    )
    our_options: dict[str, Any] = {}
    if isinstance(builder, Builder):
        our_options["build_options"] = BuildOptions(report=report, **options)
    builder.download_and_prepare(
        download_dir=download_dir,
        download_config=config,
        file_format=declared.file_format,
        **our_options,
    )
    again = Path(builder.data_dir)
    return (Manifest.read(again) or adopt(again)).content


def compare(original: Content | None, again: Content | None) -> Iterator[Issue]:
    """Yields the differences between a version and its rebuild, None without a manifest."""
    if original is None or again is None:
        yield Issue(
            "not-rebuilt", FILE_NAME, "There is no manifest to compare with.",
            "run my-datasets adopt if TFDS built the version; builds with this package have one",
        )  # fmt: skip
        return
    if original.schema != again.schema:
        yield Issue(
            "other-features", "features.json", "The rebuild has different features.",
            _FIX, original.schema[:16], again.schema[:16],
        )  # fmt: skip
    for name in sorted({*original.splits, *again.splits}):
        if name not in original.splits or name not in again.splits:
            where = "version" if name in original.splits else "rebuild"
            yield Issue("other-splits", f"split {name}", f"Only the {where} has this split.", _FIX)
            continue
        yield from _split(name, original.splits[name], again.splits[name])


def _split(name: str, original: SplitContent, again: SplitContent) -> Iterator[Issue]:
    if original.ordered != again.ordered:
        same = original.unordered == again.unordered
        yield Issue(
            "other-order" if same else "other-examples", f"split {name}",
            "The rebuild has the same examples in a different order." if same else
            "The rebuild has different examples.",
            _FIX, f"{original.examples:,} examples, digest {original.ordered[:16]}",
            f"{again.examples:,} examples, digest {again.ordered[:16]}",
        )  # fmt: skip
        return
    files = {one.name: one.sha256 for one in original.shards}
    found = {one.name: one.sha256 for one in again.shards}
    if files.keys() != found.keys():
        yield Issue(
            "other-shards", f"split {name}",
            "The rebuild has the same examples in different shards.",
            "build with the same --num-shards or --max-shard-size-mb as before",
            f"{len(files)} shards", f"{len(found)} shards",
        )  # fmt: skip
        return
    for shard, sha256 in files.items():
        if found[shard] != sha256:
            yield Issue(
                "other-bytes", shard,
                "The rebuild has the same examples, but different bytes.",
                _FIX, f"SHA-256 {sha256[:16]}", found[shard][:16],
            )  # fmt: skip
