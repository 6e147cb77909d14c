"""Opens the data of a plan: where its examples come from, and in which order."""

import dataclasses
from collections import deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from my_datasets.errors import PlanError, explain
from my_datasets.input_pipeline.decode.example_cache import open_cache
from my_datasets.input_pipeline.order.bucketing import LengthOrder
from my_datasets.input_pipeline.order.mixing import MixedOrder, MixedSource
from my_datasets.input_pipeline.order.packing import PackedSource, cut, fitted
from my_datasets.input_pipeline.order.permutation import (
    ORDER_VERSION,
    EpochOrder,
    Order,
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
from my_datasets.input_pipeline.read import prepared as prepared_version
from my_datasets.input_pipeline.read.length_index import leaf_of, lengths_of
from my_datasets.input_pipeline.read.prepared import WINDOWS_HELD, Prepared
from my_datasets.input_pipeline.read.skipping import SkippingSource
from my_datasets.input_pipeline.read.source import IndexedExamples, open_source
from my_datasets.input_pipeline.transform.crops import Crop
from my_datasets.input_pipeline.transform.text import TokenizedSource, content_of
from my_datasets.records.random_access import RecordReader


def opened(
    plan: Plan, *, warns: bool = True, version: int = ORDER_VERSION
) -> tuple[IndexedExamples, EpochOrder]:
    """Returns the examples of a plan, as it makes them, and their order.

    Args:
      plan: The plan; stages that are about batches need not be there.
      warns: Whether to say which examples are skipped.
      version: Which order a seed means; see `Order`.

    Raises:
      PlanError: The data are others than those that the plan was made for.
    """
    mix = plan.get(Mix)
    if mix is not None:
        return _mixed(mix, version, warns=warns)
    read = plan.the(Read)
    found = _checked(read)
    decode = plan.the(Decode)
    cache, pack, shuffle = plan.get(Cache), plan.get(Pack), plan.get(Shuffle)
    if cache is not None:
        # It keeps images as they are stored, which takes a quarter of the memory.
        decode = dataclasses.replace(decode, image_dtype=None)
    source = open_examples(found, read.split, decode, held=read.held, warns=warns)
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
    if window is None and read.held is not None:
        window, seed = read.held // WINDOWS_HELD, None
    if window is not None:
        order = _windows(found.records(read.split, read.held), window, seed, version)
    bucket = plan.get(Bucket)
    if bucket is not None:
        lengths = _lengths(plan, found, bucket.column)
        order = LengthOrder(order, lengths, bucket.window, bucket.group, bucket.seed, version)
    return source, order


def _mixed(mix: Mix, version: int, *, warns: bool) -> tuple[IndexedExamples, EpochOrder]:
    found = [opened(Plan(part), warns=warns, version=version) for part in mix.parts]
    names = tuple(Plan(part).the(Read).dataset for part in mix.parts)
    orders = tuple(order for _, order in found)
    order = MixedOrder(orders, mix.shares, mix.stop, mix.seed, version)
    return MixedSource(tuple(source for source, _ in found), names), order


def _windows(records: RecordReader, window: int, seed: int | None, version: int) -> WindowOrder:
    """Returns the order of windows of shards, which are fetched before they are wanted."""
    runs = records.runs()
    bringer = records.fetch
    announced: deque[list[int]] = deque(maxlen=WINDOWS_HELD)

    def announce(wanted: list[int]) -> None:
        if wanted not in announced and bringer is not None:
            announced.append(wanted)
            bringer.ahead(runs[i][0] for i in wanted)

    return WindowOrder(tuple(n for _, n in runs), window, seed, announce, version)


def _lengths(plan: Plan, found: Prepared, column: str) -> npt.NDArray[np.int64]:
    """Returns how long a feature is in each example, of which nothing else is decoded."""
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
                explain(
                    f"{one.path} holds another tokenizer than the plan was made for.",
                    fix="make the plan anew",
                )
            )
        source = TokenizedSource(source, one.column, one.path)
    return source


def _checked(read: Read) -> Prepared:
    """Returns the version that is to be read."""
    found = prepared_version.find(read.path, held_at=read.held_at)
    if found.content != read.content:
        raise PlanError(
            explain(
                f"{read.path} holds other data than the plan was made for.",
                f"Expected: {read.dataset}, content {read.content[:12]}",
                f"Found: {found.name}, content {found.content[:12]}",
                fix="make the plan anew",
            )
        )
    return found


def open_examples(
    prepared: Prepared,
    split: str,
    decode: Decode,
    *,
    held: int | None = None,
    warns: bool = True,
) -> IndexedExamples:
    """Returns the examples of a split as a stage decodes them.

    Args:
      prepared: The version.
      split: The split or slice.
      decode: The stage.
      held: Of a version in an object store, how many shards may lie here at a time.
      warns: Whether to say which examples are skipped.

    Raises:
      FeatureError: There is no such feature.
    """
    crop = None
    if decode.crop is not None and decode.image_size is not None:
        crop = Crop(decode.crop, decode.image_size, decode.crop_area, decode.seed)
    source = open_source(
        prepared, split, as_supervised=decode.as_supervised, columns=decode.columns,
        image_size=decode.image_size, crop=crop, floats=decode.image_dtype is not None, held=held,
        missing=decode.missing,
    )  # fmt: skip
    return SkippingSource(source, warns=warns) if decode.undecodable == "skip" else source
