"""Which examples a split such as `train[:80%]+test` means, without TFDS.

The language and its rounding are those of `tfds.core.splits` (per cent are rounded to the closest
example).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from my_datasets.errors import SplitNotFoundError, nearest

_PART = re.compile(r"(?P<split>[\w-]+)(\[(?P<slice>[\d\w%:.-]+)\])?")
_BOUND = re.compile(r"((?P<value>-?[\d_.]+)(?P<unit>%|shard)?)?")


@dataclass(frozen=True)
class ExampleRange:
    """Examples of a split that follow each other: from `begin`, counted from 0, to before `end`."""

    split: str
    begin: int
    end: int


def resolve(spec: str, shard_lengths: Mapping[str, Sequence[int]]) -> list[ExampleRange]:
    """Returns the ranges that a split means, in its order.

    `spec` is a split, a slice such as `train[10:20]`, `train[:80%]` or `train[1shard]`, several of
    them joined by `+`, or `all`. `shard_lengths` has the examples of each shard, by split.

    Raises:
      SplitNotFoundError: It is malformed, or there is no such split, or it has too few examples.
    """
    found: list[ExampleRange] = []
    for part in map(str.strip, spec.split("+")):
        match = _PART.fullmatch(part)
        if match is None:
            raise _malformed(spec)
        name = match["split"]
        if name == "all" and match["slice"] is None:
            found += [ExampleRange(split, 0, sum(sizes)) for split, sizes in shard_lengths.items()]
            continue
        if name not in shard_lengths:
            raise SplitNotFoundError(
                f"There is no split {name!r}.",
                f"The splits: {', '.join(shard_lengths)}",
                nearest(name, shard_lengths),
                fix="choose among those, or a slice such as 'train[:80%]'",
            )
        sizes = shard_lengths[name]
        begin, end = _bounds(match["slice"], sizes, spec)
        total = sum(sizes)
        if abs(begin) > total or abs(end) > total:
            raise SplitNotFoundError(
                f"The split {name!r} has no examples {begin:,} to {end:,}.",
                f"It has {total:,}",
                fix="choose a slice within it",
            )
        begin, end = (bound + total if bound < 0 else bound for bound in (begin, end))
        found.append(ExampleRange(name, begin, max(begin, end)))
    return found


@dataclass(frozen=True)
class _Lengths:
    """What TFDS's splits need to know about a split."""

    name: str
    shard_lengths: Sequence[int]

    @property
    def num_examples(self) -> int:
        return sum(self.shard_lengths)

    @property
    def num_shards(self) -> int:
        return len(self.shard_lengths)


def text_of(split: Any, shard_lengths: Mapping[str, Sequence[int]]) -> str:
    """Returns a split as text; it may also be a `ReadInstruction`, or one of `tfds.even_splits`.

    Raises:
      SplitNotFoundError: There is no such split.
    """
    if isinstance(split, str):
        return split
    try:
        ranges = split.to_absolute({name: _Lengths(name, n) for name, n in shard_lengths.items()})
    except (KeyError, ValueError, AssertionError) as error:
        raise SplitNotFoundError(
            f"{split!r} means no examples: {error}",
            f"The splits: {', '.join(shard_lengths)}",
            fix="choose among those",
        ) from error
    parts = []
    for one in ranges:
        is_whole = one.from_ is None and one.to is None
        bounds = f"[{one.from_ or 0}:{'' if one.to is None else one.to}]"
        parts.append(one.splitname + ("" if is_whole else bounds))
    return "+".join(parts)


def _bounds(text: str | None, sizes: Sequence[int], spec: str) -> tuple[int, int]:
    """Returns the first example and that after the last; from the end if they are negative."""
    total = sum(sizes)
    if text is None:
        return 0, total
    bounds = [_BOUND.fullmatch(bound) for bound in text.split(":")]
    given = [bound for bound in bounds if bound is not None]
    if len(given) < len(bounds) or len(bounds) > 2 or not any(bound[0] for bound in given):
        raise _malformed(spec)
    # As in TFDS, one unit applies to both.
    unit = next((bound["unit"] for bound in given if bound["unit"]), None)
    try:
        values = [_number(bound["value"], unit) for bound in given]
    except ValueError:
        raise _malformed(spec) from None
    if len(values) == 1:
        if unit != "shard" or values[0] is None:
            raise _malformed(spec)
        values.append(values[0] + 1)
    first, last = values
    if unit == "shard":
        begin = 0 if first is None else sum(sizes[: int(first)])
        if last is None:
            return begin, total
        end = int(last) + len(sizes) if last <= 0 else int(last)
        return begin, sum(sizes[:end])
    if unit == "%":
        return (
            0 if first is None else round(first * total / 100.0),
            total if last is None else round(last * total / 100.0),
        )
    return 0 if first is None else int(first), total if last is None else int(last)


def _number(text: str | None, unit: str | None) -> float | None:
    if not text:
        return None
    return float(text) if unit == "%" else int(text)


def _malformed(spec: str) -> SplitNotFoundError:
    return SplitNotFoundError(
        f"{spec!r} is no split.",
        "Expected a name, or a slice: 'train[:80%]', 'train[100:200]', 'train[1shard]+test'",
        fix="write it so",
    )
