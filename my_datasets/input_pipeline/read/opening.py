"""Opens the data of a plan: its examples, and their order.

`SkippingSource` skips examples with undecodable images or damaged records, and counts them.
"""

import dataclasses
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from my_datasets.core.logs import get_logger
from my_datasets.errors import CorruptShardError, ExampleError, PlanError
from my_datasets.input_pipeline.decode.decoder import FeatureMismatchError, UndecodableImagesError
from my_datasets.input_pipeline.decode.example_cache import open_cache
from my_datasets.input_pipeline.decode.images import Crop
from my_datasets.input_pipeline.order.length_batching import (
    LengthOrder,
    PackedSource,
    cut,
    fitted,
    leaf_of,
    lengths_of,
)
from my_datasets.input_pipeline.order.mixing import MixedOrder, MixedSource
from my_datasets.input_pipeline.order.permutation import (
    ORDER_VERSION,
    EpochOrder,
    Order,
    Places,
    WindowOrder,
)
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import (
    Bucket,
    Cache,
    Decode,
    Mix,
    Pack,
    Read,
    Shuffle,
    Tokenize,
)
from my_datasets.input_pipeline.read.prepared import OpenedVersions, Prepared
from my_datasets.input_pipeline.read.source import ExampleSource, IndexedExamples, open_source
from my_datasets.input_pipeline.transform.text import TokenizedSource, content_of
from my_datasets.records.random_access import DamagedRecordsError, RecordReader
from my_datasets.resolving.shard_fetcher import CACHED_WINDOWS, ShardFetcher

_log = get_logger(__name__)


class SkippingSource:
    """Examples; one that cannot be decoded is replaced by the next one that can.

    The next one in the order of storage is used. So batches keep their sizes, all hosts take the
    same number of steps, and results do not depend on which host reads.
    """

    def __init__(self, source: ExampleSource, *, warns: bool = True) -> None:
        self._source = source
        self._warns = warns
        self._skipped: dict[int, None] = {}
        self._failed: ExampleError | CorruptShardError | None = None

    @property
    def tree(self) -> Any:
        """The leaves of an example, nested as its values are."""
        return self._source.tree

    @property
    def skipped(self) -> int:
        """The number of different examples skipped so far."""
        return len(self._skipped)

    def __len__(self) -> int:
        return len(self._source)

    def columns(self, numbers: Places, epoch: int = 0) -> Any:
        """Returns examples as columns.

        Raises:
          ExampleError: None can be decoded, or one does not match the features for another reason.
          CorruptShardError: All records are damaged, or a shard is truncated or does not match its
            index.
        """
        while True:
            if self._failed is not None:
                raise self._failed
            chosen = self._replaced(numbers)
            try:
                return self._source.decoded(chosen, epoch)
            except DamagedRecordsError as error:
                self._note(chosen[list(error.rows)], list(error.messages), error)
            except UndecodableImagesError as error:
                explained = [
                    self._source.explained(error, chosen, i) for i in range(len(error.rows))
                ]
                self._note(chosen[list(error.rows)], list(map(str, explained)), explained[0])
            except FeatureMismatchError as error:
                raise self._source.explained(error, chosen) from error

    def _note(
        self, numbers: Places, messages: list[str], error: ExampleError | CorruptShardError
    ) -> None:
        for number, message in zip(numbers.tolist(), messages, strict=True):
            if number not in self._skipped:
                self._skipped[number] = None
                if self._warns:
                    _log.warning("skipped, %d so far: %s", len(self._skipped), message)
        if len(self._skipped) == len(self):
            self._failed = error

    def _replaced(self, numbers: Places) -> Places:
        """Returns the examples that replace the requested ones."""
        if not self._skipped:
            return numbers
        bad = np.fromiter(self._skipped.copy(), np.int64)
        found = numbers.copy()
        while len(rows := np.flatnonzero(np.isin(found, bad))):
            found[rows] = (found[rows] + 1) % len(self)
        return found


def opened(
    plan: Plan,
    versions: OpenedVersions | None = None,
    *,
    warns: bool = True,
    version: int = ORDER_VERSION,
) -> tuple[IndexedExamples, EpochOrder]:
    """Returns the examples of a plan, decoded and transformed, and their order.

    Args:
      plan: The plan; it needs no stages for batches.
      versions: Versions that the caller has already opened; None for none.
      warns: Whether to log which examples are skipped.
      version: Which order a seed means; see `Order`.

    Raises:
      PlanError: The data is not what the plan was made for.
    """
    versions = versions or OpenedVersions()
    mix = plan.get(Mix)
    if mix is not None:
        return _mixed(mix, versions, version, warns=warns)
    read = plan.the(Read)
    found = _checked(read, versions)
    decode = plan.the(Decode)
    cache, pack, shuffle = plan.get(Cache), plan.get(Pack), plan.get(Shuffle)
    if cache is not None:
        # It keeps images as they are stored, which takes a quarter of the memory.
        decode = dataclasses.replace(decode, image_dtype=None)
    source = open_examples(
        found, read.split, decode, max_cached_shards=read.max_cached_shards, warns=warns
    )
    source = _tokenized(source, _tokenizers(plan))
    if cache is not None:
        source = open_cache(cache, plan, source)
    if pack is not None:
        lengths = _lengths(plan, found, pack.column)
        rows = cut(lengths, pack.length) if pack.splits else fitted(lengths, pack.length)
        source = PackedSource(source, leaf_of(source.tree, pack.column), rows, pack.length)
    seed = None if shuffle is None else shuffle.seed
    order: EpochOrder = Order(len(source), seed, version)
    window = None if shuffle is None or seed is None else shuffle.window
    if window is None and read.max_cached_shards is not None:
        window, seed = read.max_cached_shards // CACHED_WINDOWS, None
    if window is not None:
        records = found.records(read.split, read.max_cached_shards)
        order = _by_windows(records, window, seed, version)
    bucket = plan.get(Bucket)
    if bucket is not None:
        lengths = _lengths(plan, found, bucket.column)
        order = LengthOrder(order, lengths, bucket.window, bucket.group, bucket.seed, version)
    return source, order


def _mixed(
    mix: Mix, versions: OpenedVersions, version: int, *, warns: bool
) -> tuple[IndexedExamples, EpochOrder]:
    found = [opened(Plan(part), versions, warns=warns, version=version) for part in mix.parts]
    names = tuple(Plan(part).the(Read).dataset for part in mix.parts)
    orders = tuple(order for _, order in found)
    order = MixedOrder(orders, mix.shares, mix.stop, mix.seed, version)
    return MixedSource(tuple(source for source, _ in found), names), order


def _by_windows(records: RecordReader, window: int, seed: int | None, version: int) -> WindowOrder:
    """Returns the order of windows of shards, which are fetched before they are needed."""
    runs = records.runs()
    fetcher = records.fetch
    announced: deque[list[int]] = deque(maxlen=CACHED_WINDOWS)

    def announce(shards: list[int]) -> None:
        if shards not in announced and isinstance(fetcher, ShardFetcher):
            announced.append(shards)
            fetcher.prefetch(runs[i][0] for i in shards)

    return WindowOrder(tuple(n for _, n in runs), window, seed, announce, version)


def _lengths(plan: Plan, found: Prepared, column: str) -> npt.NDArray[np.int64]:
    """Returns the length of a feature in each example; decodes nothing else."""
    read = plan.the(Read)
    some = [stage for stage in _tokenizers(plan) if stage.column == column]
    leaf_of(found.schema.tree, column)
    undecodable = plan.the(Decode).undecodable
    alone = Decode((column.partition("/")[0],), as_supervised=False, undecodable=undecodable)
    source = _tokenized(open_examples(found, read.split, alone, warns=False), some)
    key = (
        found.content, str(found.modified), read.split, column, *(one.content for one in some)
    )  # fmt: skip
    return lengths_of(source, column, key)


def _tokenizers(plan: Plan) -> list[Tokenize]:
    return [stage for stage in plan.stages if isinstance(stage, Tokenize)]


def _tokenized(source: IndexedExamples, tokenizers: Iterable[Tokenize]) -> IndexedExamples:
    for one in tokenizers:
        if content_of(one.path) != one.content:
            raise PlanError(
                f"{one.path} holds another tokenizer than the plan was made for.",
                fix="create the plan again",
            )
        source = TokenizedSource(source, one.column, one.path)
    return source


def _checked(read: Read, versions: OpenedVersions) -> Prepared:
    """Returns the version to read."""
    found = versions.at(read.path, read.shards_dir)
    if found.content != read.content:
        raise PlanError(
            f"{read.path} holds other data than the plan was made for.",
            f"Expected: {read.dataset}, content {read.content[:12]}",
            f"Found: {found.name}, content {found.content[:12]}",
            fix="create the plan again",
        )
    return found


def open_examples(
    prepared: Prepared,
    split: str,
    decode: Decode,
    *,
    max_cached_shards: int | None = None,
    warns: bool = True,
) -> IndexedExamples:
    """Returns the examples of a split as a stage decodes them.

    Args:
      prepared: The version.
      split: The split or slice.
      decode: The stage.
      max_cached_shards: How many shards of an object store may be cached at a time.
      warns: Whether to log which examples are skipped.

    Raises:
      FeatureError: There is no such feature.
    """
    crop = None
    if decode.crop is not None and decode.image_size is not None:
        crop = Crop(decode.crop, decode.image_size, decode.crop_area, decode.seed)
    source = open_source(
        prepared, split, as_supervised=decode.as_supervised, columns=decode.columns,
        image_size=decode.image_size, crop=crop, floats=decode.image_dtype is not None,
        max_cached_shards=max_cached_shards, missing=decode.missing,
    )  # fmt: skip
    return SkippingSource(source, warns=warns) if decode.undecodable == "skip" else source
