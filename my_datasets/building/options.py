"""The options of a build, and the job that an engine gets: what to build, and what came of it."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from my_datasets.building.progress import BuildProgress
from my_datasets.building.units import Encoder, Quarantined, SplitInput
from my_datasets.core.json_types import Json
from my_datasets.core.processes import cores
from my_datasets.errors import InvalidOptionError
from my_datasets.metadata.content import ShardContent

# The default of `max_memory` is this, or a quarter of the machine's memory if that is less.
_MOST_MEMORY = 2 << 30
# A worker needs at least this for one batch of examples with its copies.
LEAST_MEMORY = 64 << 20

WriteShard = Callable[[Path, Iterable[tuple[int, bytes]]], None]
# Examines a shard that was just written: takes its path, the numbers of examples of the shard and
# of its split, and an empty folder for files. The result must be picklable.
Examine = Callable[[Path, int, int, Path], object]


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How the engine builds a version, beyond TFDS's `DownloadConfig`.

    Attributes:
      workers: Processes that generate and write; by default the cores this process may use.
      max_memory: Bytes of records that all processes together may buffer before writing them; by
        default 2 GiB, or a quarter of the machine's memory if that is less. Current batches come on
        top.
      splits: Only these splits; None for all.
      resume: Resume an unfinished build with the same inputs; otherwise start over.
      on_error: `fail`, or `quarantine`, which writes examples that do not fit to a report; by
        default the builder's `ON_ERROR`, which is `fail` unless it says otherwise.
      max_quarantined: The part of a split's examples, from 0 to 1, above which quarantine fails.
      unit_timeout: Seconds without a finished batch of examples after which a worker counts as
        hanging; None for any time.
      readers: Hosts that will read at the same time; there are about ten shards for each.
      mirrors: Other addresses for downloads, by an address or a prefix of addresses; tried first.
      version_gate: Refuse a version whose number rises too little for the changes since the highest
        earlier version in the same data directory.
      engine: `local`, or `beam`, which runs the builder's units on other machines; builders with
        Beam collections always run there.
      beam_options: Options of Beam's pipelines, by their names without `--`; `runner` among them.
      destination: A data directory in an object store, used instead of the builder's own:
        `s3://BUCKET/FOLDER` or `gs://BUCKET/FOLDER`.
      report: Called with the progress about once a second; by default a progress bar like TFDS's.
    """

    workers: int | None = None
    max_memory: int | None = None
    splits: tuple[str, ...] | None = None
    resume: bool = True
    on_error: str | None = None
    max_quarantined: float = 0.01
    unit_timeout: float | None = None
    readers: int = 1
    mirrors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    version_gate: bool = True
    engine: str = "local"
    beam_options: Mapping[str, object] = field(default_factory=dict)
    destination: str | None = None
    report: Callable[[BuildProgress], None] | None = None

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
          InvalidOptionError: One of them is out of its range.
        """
        self._require(self.workers is None or self.workers >= 1, "workers", "at least 1")
        self._require(
            self.max_memory is None or self.max_memory >= LEAST_MEMORY,
            "max_memory", f"at least {LEAST_MEMORY:,} bytes",
        )  # fmt: skip
        self._require(
            self.on_error in (None, "fail", "quarantine"), "on_error", "'fail' or 'quarantine'"
        )
        self._require(0 <= self.max_quarantined <= 1, "max_quarantined", "from 0 to 1")
        self._require(self.unit_timeout is None or self.unit_timeout > 0, "unit_timeout", "above 0")
        self._require(self.readers >= 1, "readers", "at least 1")
        self._require(
            self.destination is None or self.destination.startswith(("s3://", "gs://")),
            "destination", "s3://BUCKET/FOLDER or gs://BUCKET/FOLDER",
        )  # fmt: skip
        self._require(self.engine in ("local", "beam"), "engine", "'local' or 'beam'")

    def _require(self, is_right: bool, name: str, expected: str) -> None:
        if not is_right:
            raise InvalidOptionError(
                f"The option {name} is {getattr(self, name)!r}.",
                f"Expected: {expected}",
                fix=f"pass another {name}, or leave it out for the default",
            )

    @property
    def worker_count(self) -> int:
        """The number of processes."""
        return cores() if self.workers is None else self.workers

    @property
    def memory(self) -> int:
        """The bytes that all processes together may buffer."""
        if self.max_memory is not None:
            return self.max_memory
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return max(LEAST_MEMORY, min(_MOST_MEMORY, pages // 4))

    @property
    def affecting_data(self) -> dict[str, object]:
        """The options that change the version's content."""
        options: dict[str, object] = {}
        if self.splits is not None:
            options["splits"] = sorted(self.splits)
        if self.on_error == "quarantine":
            options["on_error"] = self.on_error
        return options


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to build, in the engine's terms.

    Attributes:
      inputs: The splits, in their order.
      ordered: Keep the order of generation.
      ignore_duplicates: Keep the first example of each key.
      max_examples: The most examples of each split; None for all.
      number_of_shards: Returns a split's number of shards, from (bytes, examples).
      shard_name: Returns a shard's file name, from (split, number, number of shards).
      write_shard: Writes a shard in a format other than TFRecord; None for TFRecord.
    """

    inputs: Sequence[SplitInput]
    encoder: Encoder
    ordered: bool
    ignore_duplicates: bool
    max_examples: int | None
    number_of_shards: Callable[[int, int], int]
    shard_name: Callable[[str, int, int], str]
    write_shard: WriteShard | None = None


@dataclass(frozen=True)
class SplitResult:
    """A split as it was built."""

    name: str
    shards: tuple[ShardContent, ...]
    num_bytes: int  # of the records, without framing
    quarantined: list[Quarantined]
    # The manifest's entries, by name, of files beside shards that are not on this machine.
    sidecars: Mapping[str, Json] = field(default_factory=dict)
