"""The builder of snapshots, which reads a topic's messages in the build engine."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import tensorflow_datasets as tfds

from my_datasets.builders.base import Builder
from my_datasets.kafka.consumer.address import TopicAddress
from my_datasets.kafka.consumer.connection import Connection, Topic
from my_datasets.kafka.decode.features import DecodedFeatures
from my_datasets.kafka.snapshot import offset_ranges
from my_datasets.metadata.features import Leaf
from my_datasets.metadata.manifest import Manifest


@dataclass(frozen=True)
class Frozen:
    """The range of a snapshot.

    Attributes:
      topic: The topic.
      ends: The first offset and the one after the last, by partition.
    """

    topic: Topic
    ends: Mapping[int, tuple[int, int]]

    def sources(self, address: TopicAddress) -> list[dict[str, Any]]:
        """Returns the sources of the messages for the manifest: an entry for each partition."""
        return [
            {"url": self._url(address, partition), "bytes": None, "sha256": None}
            for partition in sorted(self.ends)
        ]

    def says(self, url: str) -> bool:
        """Returns whether a source's URL is one of these; its brokers may differ."""
        return any(url.endswith(self._suffix(partition)) for partition in self.ends)

    def given(self, which: int) -> str:
        """Returns the first offsets (0) or the ones after the last (1), as options take them."""
        return ",".join(f"{p}={self.ends[p][which]}" for p in sorted(self.ends))

    def _url(self, address: TopicAddress, partition: int) -> str:
        return f"kafka://{address.brokers}{self._suffix(partition)}"

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
        keys = None
        if supervised is not None and all(isinstance(one, Leaf) for one in supervised):
            keys = tuple(one.path[0] for one in supervised)
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"Messages of the Kafka topic {self.FROZEN.topic.name}.",
            features=self.DESCRIBED.loaded(),
            supervised_keys=keys,
            disable_shuffling=self.IN_ORDER,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:  # noqa: ARG002
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
        noted = [one["url"].partition("/")[2].partition("/")[2] for one in sources]
        whole = hashlib.sha256(
            json.dumps([noted, self.UNITS[0].payload if self.UNITS else ""]).encode()
        )
        replace(
            manifest,
            fingerprint={**manifest.fingerprint, "messages": whole.hexdigest()},
            provenance={
                **manifest.provenance,
                "sources": sources,
                "reproduce": self.REPRODUCE,
            },
        ).write(directory)
