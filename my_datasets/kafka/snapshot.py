"""`snapshot`: a range of a topic's offsets as an immutable prepared version, and its builder."""

import dataclasses
import hashlib
import json
import os
import shlex
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import tensorflow_datasets as tfds

from my_datasets.builders.base import Builder
from my_datasets.building.options import BuildOptions
from my_datasets.core.reference import DatasetReference
from my_datasets.errors import InvalidOptionError, StaleDataError, StreamError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.kafka import offset_ranges, offsets, payloads
from my_datasets.kafka.connection import Connection, Topic, TopicAddress
from my_datasets.kafka.decoder import Decoding
from my_datasets.kafka.features import DecodedFeatures, Features, described
from my_datasets.kafka.offsets import When
from my_datasets.kafka.payloads import Leaves
from my_datasets.kafka.stream import parser_of
from my_datasets.metadata import layout
from my_datasets.metadata.features import Leaf
from my_datasets.metadata.manifest import Manifest
from my_datasets.resolving.resolver import root_of
from my_datasets.storage import addresses


@dataclass(frozen=True)
class Frozen:
    """A topic, and by partition the first offset and the one after the last."""

    topic: Topic
    ends: Mapping[int, tuple[int, int]]

    def sources(self, address: TopicAddress) -> list[dict[str, str | None]]:
        """Returns the sources of the messages for the manifest: an entry for each partition."""
        return [
            {
                "url": f"kafka://{address.brokers}{self._suffix(partition)}",
                "bytes": None,
                "sha256": None,
            }
            for partition in sorted(self.ends)
        ]

    def includes(self, url: str) -> bool:
        """Returns whether a source's URL is one of these; its brokers may differ."""
        return any(url.endswith(self._suffix(partition)) for partition in self.ends)

    def as_option(self, which: int) -> str:
        """Returns the first offsets (0) or the ones after the last (1), as options take them."""
        return ",".join(f"{p}={self.ends[p][which]}" for p in sorted(self.ends))

    def _suffix(self, partition: int) -> str:
        begin, end = self.ends[partition]
        return (
            f"/{self.topic.name}?cluster={self.topic.cluster}&partition={partition}"
            f"&from={begin}&until={end}"
        )


class SnapshotBuilder(Builder, skip_registration=True):
    """Builds a version from a topic's messages; `snapshot` creates a subclass for each dataset."""

    FROZEN: ClassVar[Frozen]
    CONNECTION: ClassVar[Connection]
    DESCRIBED: ClassVar[DecodedFeatures]
    READER: ClassVar[offset_ranges.RangeReader]
    UNITS: ClassVar[list[offset_ranges.OffsetRange]]
    SPLIT: ClassVar[str]
    IN_ORDER: ClassVar[bool]
    REPRODUCE: ClassVar[str]

    def _info(self) -> tfds.core.DatasetInfo:
        supervised = self.DESCRIBED.supervised
        leaves = [one for one in supervised or () if isinstance(one, Leaf)]
        keys = tuple(one.path[0] for one in leaves) if len(leaves) == 2 else None
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"Messages of the Kafka topic {self.FROZEN.topic.name}.",
            features=self.DESCRIBED.loaded(),
            supervised_keys=keys,
            disable_shuffling=self.IN_ORDER,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, object]:  # noqa: ARG002
        return {self.SPLIT: self.units(self.READER, self.UNITS)}

    def _download_and_prepare(
        self,
        dl_manager: tfds.download.DownloadManager,
        download_config: tfds.download.DownloadConfig,
    ) -> None:
        """Builds the version, and records the offsets in its manifest before it is visible."""
        super()._download_and_prepare(dl_manager, download_config)
        directory = Path(self.data_dir)
        manifest = Manifest.read(directory)
        if manifest is None:
            return
        sources = self.FROZEN.sources(self.CONNECTION.address)
        noted = [str(one["url"]).partition("/")[2].partition("/")[2] for one in sources]
        whole = hashlib.sha256(
            json.dumps([noted, self.UNITS[0].payload if self.UNITS else ""]).encode()
        )
        provenance = {**manifest.provenance, "sources": sources, "reproduce": self.REPRODUCE}
        fingerprint = {**manifest.fingerprint, "messages": whole.hexdigest()}
        replace(manifest, fingerprint=fingerprint, provenance=provenance).write(directory)


@dataclass(frozen=True)
class TopicSnapshot:
    """The result of `snapshot`.

    Attributes:
      dataset: The version's full name.
      built: Whether it was built now; False if the same version existed already.
      frozen: The topic, and the range of offsets.
      reproduce: The command that builds it again.
    """

    dataset: str
    path: Path
    built: bool
    examples: int
    frozen: Frozen
    reproduce: str


def snapshot(
    url: str,
    reference: str,
    *,
    features: Features,
    payload: str = "example",
    schema: payloads.AvroSchema | None = None,
    begin: When = "earliest",
    end: When = "latest",
    split: str = "train",
    in_order: bool = False,
    allow_gaps: bool = False,
    options: Mapping[str, object] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    build_options: BuildOptions | None = None,
) -> TopicSnapshot:
    """Freezes a range of offsets of all partitions of a topic into a prepared version.

    The same offsets give the same bytes: keys are made of partition and offset. `features`,
    `payload` and `schema` are as for `stream`, `options` are librdkafka's. `end` means the first
    messages to leave out. Examples are shuffled unless `in_order` keeps them by partition and
    offset. `allow_gaps` freezes a compacted topic, although the snapshot cannot be reproduced.

    Raises:
      LostMessagesError: The range is not completely available.
      StreamError: The topic cannot be read.
      StaleDataError: The version exists with other messages.
    """
    name, version = _named(reference)
    connection = Connection(TopicAddress.parse(url), dict(options or {}))
    fix = "make the snapshot in a directory on this machine, then publish it"
    root = addresses.local_path(root_of(data_dir), "The data directory", fix)
    declared = described(features, data_dir)
    parser = parser_of(payload, declared.tree, schema)
    decoding = None if parser is not None else _as_files(declared.tree)
    frozen, has_gaps = _resolved_range(connection, begin, end)
    how = json.dumps([payload, schema, declared.loaded().to_json()], sort_keys=True)
    reader = offset_ranges.RangeReader(connection, parser, decoding, allow_gaps or not has_gaps)
    # Paths mean nothing on another machine: --features is left out, --schema named only.
    named = ["--features", features] if isinstance(features, str) and os.sep not in features else []
    reproduce = shlex.join(
        [
            *("my-datasets", "snapshot", str(connection.address), "--as", f"{name}:{version}"),
            *("--from-offsets", frozen.as_option(0), "--until", frozen.as_option(1)),
            *("--payload", payload, *named, "--split", split),
            *(["--schema", "SCHEMA.json"] if schema is not None else []),
            *(["--in-order"] if in_order else []),
            *(["--allow-gaps"] if has_gaps else []),
        ]
    )
    values = {
        "__module__": SnapshotBuilder.__module__,
        "name": name,
        "VERSION": tfds.core.Version(version),
        "FROZEN": frozen,
        "CONNECTION": connection,
        "DESCRIBED": declared,
        "READER": reader,
        "UNITS": offset_ranges.cut(frozen.topic.cluster, frozen.topic.name, frozen.ends, how),
        "SPLIT": split,
        "IN_ORDER": in_order,
        "REPRODUCE": reproduce,
    }
    title = "".join(part.capitalize() for part in name.split("_"))
    kind: Any = types.new_class(
        title, (SnapshotBuilder,), {"skip_registration": True}, lambda body: body.update(values)
    )
    version_dir = Path(root).expanduser() / name / version
    existed = layout.is_prepared(version_dir)
    if existed:
        _refuse_another(version_dir, frozen)
    builder = kind(data_dir=str(Path(root).expanduser()))
    if not existed:
        builder.download_and_prepare(build_options=build_options)
    count = int(builder.info.splits[split].num_examples)
    return TopicSnapshot(
        builder.info.full_name, Path(builder.data_dir), not existed, count, frozen, reproduce
    )


def _named(reference: str) -> tuple[str, str]:
    parsed = DatasetReference.parse(reference)
    version = str(parsed.version or "")
    if parsed.config or not version or "*" in version:
        raise InvalidOptionError(
            f"{reference!r} does not name one version.",
            fix="give the name and the version: clicks:1.0.0",
        )
    return parsed.name, version


def _as_files(tree: Leaves) -> Decoding:
    """Returns a decoding of `tf.Example`s that leaves images encoded."""

    def as_file(leaf: Leaf) -> Leaf:
        if leaf.form != "image":
            return leaf
        return dataclasses.replace(leaf, form="bytes", dtype="object", shape=())

    return Decoding(Decoder(pytree.map_columns(as_file, tree)))


def _resolved_range(connection: Connection, begin: When, end: When) -> tuple[Frozen, bool]:
    """Resolves the range, and returns it with whether some of it may have been compacted away.

    Raises:
      StreamError: The topic cannot be read, or the range is empty.
      LostMessagesError: The range is not completely available.
      InvalidOptionError: The range of a partition ends before it begins.
    """
    reported: list[object] = []
    consumer = connection.consumer({}, reported.append)
    try:
        topic = connection.describe(consumer, reported)
        first = offsets.resolved(connection, consumer, begin, topic.partitions)
        last = offsets.resolved(connection, consumer, end, topic.partitions)
        for one in topic.partitions:
            low, high = offsets.watermarks(connection, consumer, one)
            if first[one] > last[one]:
                raise InvalidOptionError(
                    f"The range of partition {one} ends before it begins.",
                    f"From {first[one]} until {last[one]}",
                    fix="swap them",
                )
            if first[one] < last[one] and (first[one] < low or last[one] > high):
                ends = first[one], last[one]
                raise offset_ranges.lost(
                    offset_ranges.OffsetRange(topic.cluster, topic.name, one, *ends, ""), low, high
                )
    finally:
        consumer.close()
    if first == last:
        raise StreamError(
            f"This range of {topic.name} has no messages.",
            fix="give a later --until, or an earlier --from-offsets",
        )
    frozen = Frozen(topic, {one: (first[one], last[one]) for one in topic.partitions})
    return frozen, connection.is_compacted(topic.name)


def _refuse_another(version_dir: Path, frozen: Frozen) -> None:
    """Raises StaleDataError unless an existing version was made of the same messages."""
    manifest = Manifest.read(version_dir)
    sources: Iterable[Any] = manifest.provenance.get("sources", []) if manifest else []
    urls = [one["url"] for one in sources]
    if len(urls) == len(frozen.ends) and all(map(frozen.includes, urls)):
        return
    said = manifest.provenance.get("reproduce", "") if manifest else ""
    raise StaleDataError(
        f"{version_dir} exists and was made of other messages.",
        f"It was made by: {said}" if said else "",
        f"Requested: {frozen.topic.name}, from {frozen.as_option(0)} until {frozen.as_option(1)}",
        fix="raise the version, or name the same offsets",
    )
