"""The stages of an input pipeline as values; they describe work, and do none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.decode.missing import MissingItems

Remainder = Literal["pad", "drop", "keep"]
CropKind = Literal["center", "random"]
Undecodable = Literal["fail", "skip"]
Stop = Literal["first", "all"]
CacheKind = Literal["none", "memory", "disk"]


class _Stage:
    @property
    def order(self) -> str:
        """The stage's effect on the order of the examples; empty if it has none."""
        return ""

    def explain(self) -> str:
        """Returns a description for `Plan.explain`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Read(_Stage):
    """Reads records at random from the shards of a prepared version.

    Attributes:
      dataset: The dataset's full name.
      path: The version's directory.
      examples: The number of examples in it.
      content: A hash of the version's shards.
      max_cached_shards: The number of shards of an object store that are cached at a time.
    """

    dataset: str
    path: str
    split: str
    examples: int
    content: str
    max_cached_shards: int | None = None
    shards_dir: str | None = None

    def explain(self) -> str:
        what = f"{self.examples:,} examples of {self.dataset}, {self.split!r}, by the record index"
        if self.max_cached_shards is None:
            return what
        cached = f"up to {self.max_cached_shards} shards at {self.shards_dir}"
        return f"{what}, from {self.path}; {cached}"


@dataclass(frozen=True)
class Shuffle(_Stage):
    """Gives each epoch an order of its own, a permutation of all examples.

    Attributes:
      seed: The seed; None for the order of storage.
      window: Shuffle the shards, and the examples of this many shards at a time; None for all.
      reason: Why the split is shuffled or not, if the user did not say.
      is_drawn: Whether the plan's seed was drawn at random; a saved position then replaces it.
    """

    seed: int | None
    window: int | None = None
    reason: str = ""
    is_drawn: bool = False

    def __post_init__(self) -> None:
        _check_at_least_1("shuffle_window", self.window)

    def explain(self) -> str:
        if self.seed is None:
            what = "nothing: examples come in the order in which they are stored"
        else:
            what = "a permutation of all examples in each epoch"
            if self.window is not None:
                what = "shards in another order in each epoch, and a permutation of the examples "
                what += f"of {self.window} at a time"
            what += f", seed {self.seed}{', drawn at random' if self.is_drawn else ''}"
        return f"{what}; {self.reason}" if self.reason else what

    @property
    def order(self) -> str:
        if self.seed is None:
            return ""
        return f"seed {self.seed}{f', {self.window} shards' if self.window else ''}"


@dataclass(frozen=True)
class Shard(_Stage):
    """Takes every count-th example, beginning with the index-th.

    Attributes:
      index: The number of this part, from 0.
      count: The number of parts.
      remainder: What happens to examples that are too many for equal parts: `pad` repeats some of
        the epoch's first examples, `drop` leaves the surplus out, `keep` makes parts unequal.
    """

    index: int
    count: int
    remainder: Remainder = "pad"

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise InvalidOptionError(
                f"There is no part {self.index} of {self.count}.",
                "Expected shard=(index, count) with 0 <= index < count",
                fix="count parts from 0",
            )
        _check_choice("remainder", self.remainder, get_args(Remainder))

    def examples(self, size: int) -> int:
        """Returns how many of `size` examples this part has."""
        if self.remainder == "pad":
            return -(-size // self.count)
        if self.remainder == "drop":
            return size // self.count
        return len(range(self.index, size, self.count))

    def explain(self) -> str:
        what = {
            "pad": "parts made equal by the epoch's first examples",
            "drop": "examples too many for equal parts left out",
            "keep": "parts may differ by one example",
        }[self.remainder]
        return f"part {self.index} of {self.count}; {what}"


@dataclass(frozen=True)
class Decode(_Stage):
    """Parses and decodes records, many at once; `plan` documents the options."""

    columns: tuple[str, ...] | None
    as_supervised: bool
    image_size: tuple[int, int] | None = None
    image_dtype: str | None = None
    crop: CropKind | None = None
    crop_area: tuple[float, float] = (0.08, 1.0)
    seed: int = 0
    undecodable: Undecodable = "fail"
    missing: MissingItems = "tfds"

    def __post_init__(self) -> None:
        if self.image_size is not None and not (
            len(self.image_size) == 2 and all(side > 0 for side in self.image_size)
        ):
            raise InvalidOptionError(
                f"image_size={self.image_size!r} is not a size.",
                fix="give (height, width) in pixels, such as (224, 224)",
            )
        _check_choice("image_dtype", self.image_dtype, (None, "float32"))
        _check_choice("crop", self.crop, (None, *get_args(CropKind)))
        _check_choice("undecodable", self.undecodable, get_args(Undecodable))
        if self.crop is not None and self.image_size is None:
            raise InvalidOptionError(
                "crop= needs image_size=.", fix="give image_size=(height, width)"
            )
        if not 0 < self.crop_area[0] <= self.crop_area[1] <= 1:
            raise InvalidOptionError(
                f"crop_area={self.crop_area!r} is not valid.",
                "Expected (least, most), parts of an image's area, above 0 and up to 1",
                fix="give such numbers, for example (0.08, 1.0)",
            )

    def explain(self) -> str:
        what = "all features" if self.columns is None else f"the features {list(self.columns)}"
        what = "input and target" if self.as_supervised else what
        size = f", images of {self.image_size[0]} x {self.image_size[1]}" if self.image_size else ""
        part = {None: "", "center": " of their middle", "random": " of a random part"}[self.crop]
        part += f", seed {self.seed}" if self.crop == "random" else ""
        kind = ", from 0 to 1" if self.image_dtype else ""
        rest = ", undecodable ones skipped" if self.undecodable == "skip" else ""
        if self.missing != "tfds":
            rest += f", missing={self.missing if self.missing == 'mask' else dict(self.missing)!r}"
        return f"{what}{size}{part}{kind}{rest}, many examples at once"


@dataclass(frozen=True)
class Cache(_Stage):
    """Keeps decoded examples for later epochs; `bytes_` estimates their size."""

    kind: CacheKind
    directory: str | None = None
    bytes_: int = 0

    def explain(self) -> str:
        where = f" at {self.directory}" if self.directory else ""
        return f"decoded examples in {self.kind}{where}, about {self.bytes_ / 1e6:,.0f} MB"


@dataclass(frozen=True)
class Batch(_Stage):
    """Puts `size` examples into each batch; `drop_remainder` drops an epoch's smaller last one."""

    size: int
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        _check_at_least_1("batch_size", self.size)

    def explain(self) -> str:
        last = "is left out if smaller" if self.drop_remainder else "may be smaller"
        return f"{self.size} examples; an epoch's last batch {last}"


@dataclass(frozen=True)
class Repeat(_Stage):
    """Begins again after each epoch; without an end if `epochs` is None."""

    epochs: int | None = 1

    def __post_init__(self) -> None:
        _check_at_least_1("epochs", self.epochs)

    def explain(self) -> str:
        return "for ever" if self.epochs is None else f"{self.epochs} epochs"


@dataclass(frozen=True)
class Prefetch(_Stage):
    """Works ahead while the model computes.

    Attributes:
      workers: The number of threads, or processes, that make batches.
      ahead: The number of pieces held ready; 0 to make each piece when it is requested.
      rows: The number of examples in a piece.
    """

    workers: int
    ahead: int
    rows: int

    def explain(self) -> str:
        if not self.ahead:
            return f"nothing: pieces of {self.rows:,} examples are made when they are asked for"
        return f"{self.workers} at work, {self.ahead} pieces of {self.rows:,} examples held ready"


@dataclass(frozen=True)
class Tokenize(_Stage):
    """Replaces a text by its token ids; `content` is a hash of the tokenizer's file."""

    column: str
    path: str
    content: str

    def explain(self) -> str:
        return f"{self.column!r} to the numbers of its tokens, by {self.path}"


@dataclass(frozen=True)
class Bucket(_Stage):
    """Groups examples of similar length.

    Attributes:
      column: The feature whose length counts.
      window: The number of consecutive examples of an epoch within which groups are formed.
      group: The number of examples in a group.
      seed: The seed of the order of groups.
    """

    column: str
    window: int
    group: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.group <= self.window or self.window % self.group:
            raise InvalidOptionError(
                f"A bucket_window of {self.window} examples does not divide into groups of "
                f"{self.group}.",
                "Expected a multiple of the group, which is a batch of all hosts",
                fix="give a bucket_window in this range",
            )

    def explain(self) -> str:
        return (
            f"{self.group:,} of similar length of {self.column!r} together, out of "
            f"{self.window:,} at a time"
        )

    @property
    def order(self) -> str:
        return f"by {self.column!r} in {self.window}/{self.group}, seed {self.seed}"


@dataclass(frozen=True)
class Pack(_Stage):
    """Packs lists of tokens into rows of `length` tokens, which are the examples from then on.

    With `splits`, a list may begin in one row and end in the next.
    """

    column: str
    length: int
    splits: bool

    def __post_init__(self) -> None:
        _check_at_least_1("pack", self.length)

    def explain(self) -> str:
        how = "all tokens on end" if self.splits else "whole lists, so that they fit best"
        return f"rows of {self.length:,} of {self.column!r}: {how}"

    @property
    def order(self) -> str:
        return f"rows of {self.length} of {self.column!r}{', split' if self.splits else ''}"


@dataclass(frozen=True)
class Mix(_Stage):
    """Mixes the examples of several plans in fixed shares.

    Attributes:
      parts: The stages of each plan that concern single examples.
      shares: The number of examples of each plan among as many as the sum of all shares.
      stop: Whether an epoch ends when the first plan, or the last, has yielded all its examples.
      seed: The seed of the order in which plans take turns.
      is_drawn: Whether the seed was drawn at random; see `Shuffle`.
    """

    parts: tuple[tuple["Stage", ...], ...]
    shares: tuple[int, ...]
    stop: Stop = "first"
    seed: int = 0
    is_drawn: bool = False

    def __post_init__(self) -> None:
        _check_choice("stop", self.stop, get_args(Stop))

    def explain(self) -> str:
        drawn = ", drawn at random" if self.is_drawn else ""
        lines = [f"an epoch ends with {self.stop}; seed {self.seed}{drawn}"]
        for share, part in zip(self.shares, self.parts, strict=True):
            of = "; ".join(stage.explain() for stage in part)
            lines.append(f"  {share / sum(self.shares):6.1%}  {of}")
        return "\n".join(lines)

    @property
    def order(self) -> str:
        return f"mixed {'/'.join(map(str, self.shares))} until {self.stop}, seed {self.seed}"


Stage = (
    Read | Shuffle | Bucket | Shard | Decode | Tokenize | Cache | Pack | Mix | Batch | Repeat
    | Prefetch
)  # fmt: skip
KINDS: dict[str, type[Stage]] = {kind.__name__.lower(): kind for kind in get_args(Stage)}


# Options are checked when the user gives them; plans also come from JSON and from other processes.
def _check_at_least_1(option: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise InvalidOptionError(f"{option}={value} is below 1.", fix="give 1 or more")


def _check_choice(option: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        names = " or ".join(map(repr, choices))
        raise InvalidOptionError(f"{option}={value!r} is unknown.", fix=f"use {names}")
