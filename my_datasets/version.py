"""`open`: one prepared version or release, and everything that can be done with it."""

import functools
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from my_datasets.core.reference import DatasetReference
from my_datasets.errors import NotPreparedError, in_an_object_store
from my_datasets.input_pipeline.plan.options import checked
from my_datasets.metadata.features import Schema
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.resolving.resolve_prepared import Reference, resolve, root_of
from my_datasets.storage import addresses

if TYPE_CHECKING:
    from my_datasets.comparison.diff import Diff
    from my_datasets.exporting.parquet import Exported
    from my_datasets.input_pipeline.engine import Batches
    from my_datasets.input_pipeline.entry_points import PlanOptions
    from my_datasets.input_pipeline.frameworks.tf_dataset import Pipeline
    from my_datasets.input_pipeline.plan.plan import Plan
    from my_datasets.input_pipeline.read.source import ExampleSource, SourceOptions
    from my_datasets.publishing.model.signed_json import Trusts
    from my_datasets.publishing.upload import Published
    from my_datasets.verification.report import Report

_CACHE_BYTES = "10GiB"


@dataclass(frozen=True)
class SplitSummary:
    """What a version declares about a split.

    Attributes:
      examples: The number of examples.
      shards: The number of shards.
    """

    examples: int
    shards: int


class Version(os.PathLike[str]):
    """One version of a dataset, on this machine, in an object store or attached to a release.

    It is a path, so everything that takes a version's directory takes it. Its properties read each
    file of the metadata once, when it is opened or when they first need it; its methods read what
    is there when they are called. Only `info`, `features`, `pipeline` and `as_dataset` load
    TensorFlow.

    Attributes:
      path: The directory of its metadata, and of its shards if they are on this machine.
      url: Where it is: the path as text, or the address in an object store.
    """

    def __init__(self, metadata: VersionMetadata, url: str | None = None) -> None:
        """Stands for the version with this metadata; use `my_datasets.open`."""
        self._metadata = metadata
        self.path = metadata.path
        self.url = url or str(self.path)

    def __fspath__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"Version({self.name!r}, {self.url!r})"

    @property
    def name(self) -> str:
        """The full name, such as `digits:1.0.0` or `glue/cola:1.0.0`."""
        return self._metadata.declared.name

    @property
    def reference(self) -> DatasetReference:
        """The exact reference."""
        return DatasetReference.parse(self.name)

    @property
    def splits(self) -> Mapping[str, SplitSummary]:
        """The splits, by name."""
        return {
            name: SplitSummary(sum(one.examples for one in shards), len(shards))
            for name, shards in self._metadata.declared.splits.items()
        }

    @property
    def manifest(self) -> Manifest | None:
        """What this package recorded when it built the version; None if it did not build it."""
        return self._metadata.manifest

    @property
    def schema(self) -> Schema:
        """The features, as this package's readers use them."""
        return self._metadata.schema

    @functools.cached_property
    def info(self) -> Any:
        """TFDS's `DatasetInfo`."""
        return self._builder.info

    @property
    def features(self) -> Any:
        """TFDS's `FeaturesDict`."""
        return self.info.features

    @functools.cached_property
    def _builder(self) -> Any:
        from my_datasets.input_pipeline.frameworks.tfds_builder import prepared_builder

        if not self._is_remote:
            return prepared_builder(self.path)
        from my_datasets.input_pipeline.read.prepared import find

        return prepared_builder(self.path, find(self.url).provider)

    @property
    def _is_remote(self) -> bool:
        return addresses.is_remote(self.url)

    def _local_dir(self) -> Path:
        """Returns the directory, for what needs all files on this machine."""
        if self._is_remote:
            raise in_an_object_store(self.url)
        return self.path

    def plan(self, **options: "Unpack[PlanOptions]") -> "Plan":
        """Returns the plan of an input pipeline; see `my_datasets.plan`."""
        from my_datasets.input_pipeline.plan.planner import plan

        return plan(self, **options)

    def pipeline(self, **options: Any) -> "Pipeline":
        """Returns a `tf.data.Dataset` of batches; see `my_datasets.pipeline`."""
        from my_datasets.input_pipeline.entry_points import pipeline

        return pipeline(self, **options)

    def batches(self, **options: Any) -> "Batches":
        """Returns batches as NumPy arrays; see `my_datasets.batches`."""
        from my_datasets.input_pipeline.entry_points import batches

        return batches(self, **options)

    def torch_loader(self, **options: Any) -> Any:
        """Returns a `torch.utils.data.DataLoader`; see `my_datasets.torch_loader`."""
        from my_datasets.input_pipeline.entry_points import torch_loader

        return torch_loader(self, **options)

    def source(self, **options: "Unpack[SourceOptions]") -> "ExampleSource":
        """Returns the examples of a split for random access; see `my_datasets.source`."""
        from my_datasets.input_pipeline.read.source import source

        return source(self, **options)

    def grain_dataset(self, **options: "Unpack[SourceOptions]") -> Any:
        """Returns a `grain.MapDataset` of examples; see `my_datasets.grain_dataset`."""
        from my_datasets.input_pipeline.entry_points import grain_dataset

        return grain_dataset(self, **options)

    def as_dataset(
        self,
        split: Any = None,
        *,
        as_supervised: bool = False,
        batch_size: int | None = None,
        shuffle_files: bool = False,
        decoders: Any = None,
        read_config: Any = None,
    ) -> Any:
        """Returns what TFDS's `as_dataset` returns; the arguments are the same.

        Raises:
          SplitNotFoundError: There is no such split.
          CorruptShardError: A shard is missing.
        """
        from my_datasets.input_pipeline.frameworks.tfds_builder import as_dataset

        return as_dataset(
            self._builder, split, False, as_supervised, batch_size, shuffle_files, decoders,
            read_config,
        )  # fmt: skip

    def stats(self) -> Mapping[str, Any]:
        """Returns the statistics of each split that were computed when the version was built.

        Raises:
          NotPreparedError: There are none.
        """
        if self.manifest is None or not self.manifest.statistics:
            raise NotPreparedError(
                f"{self.url} has no statistics.",
                fix=f"rebuild it, or run: my-datasets adopt {self.url}",
            )
        return self.manifest.statistics

    def verify(self, **options: Any) -> "Report":
        """Verifies the version's files; see `my_datasets.verification.verifier.verify`.

        Raises:
          DataDirError: It is in an object store.
        """
        from my_datasets.verification.verifier import verify

        return verify(self._local_dir(), **options)

    def diff(self, other: Reference, *, workers: int | None = None) -> "Diff":
        """Returns what changed from this version to another one.

        Args:
          other: The newer version, as for `my_datasets.open`.
          workers: The number of processes that read shards; None for one per core.

        Raises:
          DataDirError: One of them is in an object store.
        """
        from my_datasets.comparison.diff import diff

        return diff(self._local_dir(), open(other)._local_dir(), workers=workers)

    def publish(self, store: str | os.PathLike[str], **options: Any) -> "Published":
        """Publishes the version as a release; see `my_datasets.publish`.

        Raises:
          DataDirError: It is in an object store.
        """
        from my_datasets.publishing.publisher import publish

        return publish(self._local_dir(), store, **options)

    def export(
        self,
        output: str | os.PathLike[str],
        *,
        splits: Collection[str] | None = None,
        **options: Any,
    ) -> "Exported":
        """Writes the version as Parquet files with a card and a Croissant description.

        Args:
          output: The directory to write.
          splits: The splits to export; None for all.
          options: Those of `my_datasets.exporting.parquet.export`.
        """
        from my_datasets.exporting.descriptions import describe
        from my_datasets.exporting.parquet import export
        from my_datasets.input_pipeline.read.prepared import find

        found = find(self)
        return export(
            found, Path(output), splits=splits,
            complete=functools.partial(describe, found), **options,
        )  # fmt: skip


@checked()
def open(  # noqa: A001 - as in `zarr.open` and `PIL.Image.open`
    reference: Reference,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    stream: bool | None = None,
    keys: "Trusts | None" = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | str = _CACHE_BYTES,
) -> Version:
    """Opens a prepared version, or a release in a store. Nothing is built.

    Example: `my_datasets.open("digits:1.*.*").batches(split="train", batch_size=64)`

    Args:
      reference: For example `"digits"` or `"digits:1.*.*"`; or a version's directory. Without a
        version, or with a wildcard, it means the newest version that is not blocked. The project's
        `datasets.lock` applies.
      data_dir: The data directory, which may be in an object store; TFDS's default if None.
      store: Where the release is: a directory, or `s3://`, `gs://`, `https://` with a folder. It is
        pulled into the data directory unless it is already there.
      stream: Whether to leave the release in the store and to fetch shards when they are read, as
        `my_datasets.attach` does. None to do so if the disk has no room for it, with a warning.
      keys: Whose signatures count; see `my_datasets.pull`.
      cache_dir: Where shards of a streamed release are cached; see `my_datasets.attach`.
      cache_bytes: The size of that cache.

    Raises:
      InvalidReferenceError: `reference` is malformed.
      NotPreparedError: No prepared version matches.
      VersionBlockedError: The version is blocked.
      LockError: The version does not match the project's lock.
      ReleaseNotFoundError, YankedError, CorruptReleaseError, SignatureError, StoreError: As `pull`.
    """
    if isinstance(reference, Version):
        return reference
    if store is not None:
        from my_datasets.publishing.puller import fetch_or_stream

        text = os.fspath(reference) if isinstance(reference, os.PathLike) else reference
        path = fetch_or_stream(
            text, store, data_dir, stream=stream, cache_dir=cache_dir, cache_bytes=cache_bytes,
            keys=keys,
        )  # fmt: skip
        return Version(VersionMetadata(path))
    is_url = isinstance(reference, (str, os.PathLike)) and addresses.is_remote(os.fspath(reference))
    if not is_url and not addresses.is_remote(root_of(data_dir)):
        resolved = resolve(reference, data_dir)
        resolved.check_lock()
        if resolved.request is None:
            return Version(VersionMetadata(resolved.path.absolute()))
        return Version(resolved.metadata)
    from my_datasets.input_pipeline.read.prepared import find

    found = find(reference, data_dir)
    return Version(found.metadata, found.provider.address if found.provider is not None else None)
