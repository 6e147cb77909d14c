"""The stages of an input pipeline, as values: what each does, and nothing that does it."""

from dataclasses import dataclass
from typing import Literal, get_args

from my_datasets.errors import InvalidOptionError, explain
from my_datasets.input_pipeline.decode.missing import MissingItems

Remainder = Literal["pad", "drop", "keep"]
CropKind = Literal["center", "random"]
Undecodable = Literal["fail", "skip"]
Stop = Literal["first", "all"]
CacheKind = Literal["none", "memory", "disk"]


class _Stage:
    @property
    def order(self) -> str:
        """What it does to the order of the examples; empty if nothing."""
        return ""


@dataclass(frozen=True)
class Read(_Stage):
    """Reads records at random from the shards of a prepared version.

    Attributes:
      dataset: The dataset's full name.
      path: The version's directory.
      split: The split or slice.
      examples: How many examples it has.
      content: Which data it is: a hash of the version's shards.
      held: Of a version in an object store, how many shards lie on this machine at a time.
      held_at: Where they lie.
    """

    dataset: str
    path: str
    split: str
    examples: int
    content: str
    held: int | None = None
    held_at: str | None = None

    def explain(self) -> str:
        """Says what is done."""
        what = f"{self.examples:,} examples of {self.dataset}, {self.split!r}, by the record index"
        if self.held is None:
            return what
        return f"{what}, from {self.path}; up to {self.held} shards at {self.held_at}"


@dataclass(frozen=True)
class Shuffle(_Stage):
    """Puts each epoch into an order of its own, a permutation of all examples.

    Attributes:
      seed: Makes another order; None for that in which they are stored.
      window: Of how many shards at a time the examples are permuted, the shards being in an order
        of their own; None for all.
      reason: Why it is so, if nobody asked for it.
      is_drawn: Whether the seed, of whatever stage, was drawn at random: a saved position then
        brings its own.
    """

    seed: int | None
    window: int | None = None
    reason: str = ""
    is_drawn: bool = False

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise InvalidOptionError(
                explain(f"shuffle_window={self.window} is none.", fix="give 1 or more")
            )

    def explain(self) -> str:
        """Says what is done."""
        if self.seed is None:
            what = "nothing: examples come in the order in which they are stored"
        elif self.window is not None:
            what = (
                f"shards in another order in each epoch, and a permutation of the examples of "
                f"{self.window} at a time, seed {self.seed}"
            )
        else:
            what = f"a permutation of all examples in each epoch, seed {self.seed}"
        what += ", drawn at random" if self.is_drawn and self.seed is not None else ""
        return f"{what}; {self.reason}" if self.reason else what

    @property
    def order(self) -> str:
        """The seed and the window."""
        if self.seed is None:
            return ""
        return f"seed {self.seed}{f', {self.window} shards' if self.window else ''}"


@dataclass(frozen=True)
class Shard(_Stage):
    """Takes every count-th example, beginning with the index-th.

    Attributes:
      index: Which of the parts, from 0.
      count: How many there are.
      remainder: What becomes of the examples that are too many for equal parts: some of the
        epoch's first ones are given again (`pad`), they are left out (`drop`), or parts are
        unequal (`keep`).
    """

    index: int
    count: int
    remainder: Remainder = "pad"

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise InvalidOptionError(
                explain(
                    f"There is no part {self.index} of {self.count}.",
                    "Expected shard=(index, count) with 0 <= index < count",
                    fix="count parts from 0",
                )
            )
        if self.remainder not in ("pad", "drop", "keep"):
            raise InvalidOptionError(
                explain(
                    f"remainder={self.remainder!r} is unknown.", fix="use 'pad', 'drop' or 'keep'"
                )
            )

    def examples(self, size: int) -> int:
        """Returns how many examples this part of so many has."""
        if self.remainder == "pad":
            return -(-size // self.count)
        if self.remainder == "drop":
            return size // self.count
        return len(range(self.index, size, self.count))

    def explain(self) -> str:
        """Says what is done."""
        what = {
            "pad": "parts made equal by the epoch's first examples",
            "drop": "examples too many for equal parts left out",
            "keep": "parts may differ by one example",
        }[self.remainder]
        return f"part {self.index} of {self.count}; {what}"


@dataclass(frozen=True)
class Decode(_Stage):
    """Parses records together, and decodes them.

    Attributes:
      columns: The features, by their names; None for all, or for input and target.
      as_supervised: Whether input and target are given, and no dict.
      image_size: (height, width) to which images are resized; None to leave them.
      image_dtype: `float32` for images from 0 to 1; None to leave them as they are stored.
      crop: Which part of images is taken before they are resized; None for all of them.
      crop_area: The least and the most that a random part has of an image's area, of 1.
      seed: Makes other random parts.
      undecodable: What becomes of examples with images that cannot be decoded, or of damaged
        records: they are an error, or they are skipped, and the next ones come in their place.
      missing: What stands for missing values: TFDS's own, a mask beside them, or values by name.
    """

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
                explain(
                    f"image_size={self.image_size!r} is no size.",
                    fix="give (height, width) in pixels, such as (224, 224)",
                )
            )
        if self.image_dtype not in (None, "float32"):
            raise InvalidOptionError(
                explain(
                    f"image_dtype={self.image_dtype!r} is unknown.",
                    fix="use 'float32', or leave it out",
                )
            )
        if self.crop not in (None, "center", "random"):
            raise InvalidOptionError(
                explain(f"crop={self.crop!r} is unknown.", fix="use 'center' or 'random'")
            )
        if self.crop is not None and self.image_size is None:
            raise InvalidOptionError(
                explain(
                    "A crop needs to know what shape is wanted.",
                    fix="give image_size=(height, width)",
                )
            )
        if not 0 < self.crop_area[0] <= self.crop_area[1] <= 1:
            raise InvalidOptionError(
                explain(
                    f"crop_area={self.crop_area!r} makes no sense.",
                    "Expected (least, most), parts of an image's area, above 0 and up to 1",
                    fix="give such numbers, for example (0.08, 1.0)",
                )
            )
        if self.undecodable not in ("fail", "skip"):
            raise InvalidOptionError(
                explain(f"undecodable={self.undecodable!r} is unknown.", fix="use 'fail' or 'skip'")
            )

    def explain(self) -> str:
        """Says what is done."""
        if self.as_supervised:
            what = "input and target"
        else:
            what = "all features" if self.columns is None else f"the features {list(self.columns)}"
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
    """Keeps what was decoded, for later epochs in whatever order.

    Attributes:
      kind: In memory, or in files.
      directory: Where the files lie.
      bytes_: About how much it will hold.
    """

    kind: CacheKind
    directory: str | None = None
    bytes_: int = 0

    def explain(self) -> str:
        """Says what is done."""
        where = f" at {self.directory}" if self.directory else ""
        return f"decoded examples in {self.kind}{where}, about {self.bytes_ / 1e6:,.0f} MB"


@dataclass(frozen=True)
class Batch(_Stage):
    """Puts examples together.

    Attributes:
      size: How many make a batch.
      drop_remainder: Whether an epoch's last batch is left out if it is smaller.
    """

    size: int
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidOptionError(
                explain(f"batch_size={self.size} is none.", fix="give 1 or more")
            )

    def explain(self) -> str:
        """Says what is done."""
        last = (
            "an epoch's last batch is left out if smaller"
            if self.drop_remainder
            else ("an epoch's last batch may be smaller")
        )
        return f"{self.size} examples; {last}"


@dataclass(frozen=True)
class Repeat(_Stage):
    """Begins again after each epoch.

    Attributes:
      epochs: How many epochs an iteration has; None for ever.
    """

    epochs: int | None = 1

    def __post_init__(self) -> None:
        if self.epochs is not None and self.epochs < 1:
            raise InvalidOptionError(
                explain(f"epochs={self.epochs} is none.", fix="give 1 or more, or None for ever")
            )

    def explain(self) -> str:
        """Says what is done."""
        return "for ever" if self.epochs is None else f"{self.epochs} epochs"


@dataclass(frozen=True)
class Prefetch(_Stage):
    """Works ahead while the model computes.

    Attributes:
      workers: How many threads, or processes, make batches.
      ahead: How many of the pieces that are made at once are held ready; with 0, each is made when
        it is asked for.
      rows: How many examples such a piece has.
    """

    workers: int
    ahead: int
    rows: int

    def explain(self) -> str:
        """Says what is done."""
        if not self.ahead:
            return f"nothing: pieces of {self.rows:,} examples are made when they are asked for"
        return f"{self.workers} at work, {self.ahead} pieces of {self.rows:,} examples held ready"


@dataclass(frozen=True)
class Tokenize(_Stage):
    """Makes numbers of tokens of a text.

    Attributes:
      column: The feature.
      path: The tokenizer's file.
      content: A hash of it.
    """

    column: str
    path: str
    content: str

    def explain(self) -> str:
        """Says what is done."""
        return f"{self.column!r} to the numbers of its tokens, by {self.path}"


@dataclass(frozen=True)
class Bucket(_Stage):
    """Puts examples of about the same length together.

    Attributes:
      column: The feature whose length it is.
      window: Of how many of an epoch's examples, in its order, those of similar length are grouped.
      group: How many stay together.
      seed: Makes another order of the groups.
    """

    column: str
    window: int
    group: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.group <= self.window or self.window % self.group:
            raise InvalidOptionError(
                explain(
                    f"Windows of {self.window} examples cannot be made of groups of {self.group}.",
                    "Expected a multiple of the group, which is a batch of all hosts",
                    fix="give such a bucket_window",
                )
            )

    def explain(self) -> str:
        """Says what is done."""
        return (
            f"{self.group:,} of similar length of {self.column!r} together, out of "
            f"{self.window:,} at a time"
        )

    @property
    def order(self) -> str:
        """All of it."""
        return f"by {self.column!r} in {self.window}/{self.group}, seed {self.seed}"


@dataclass(frozen=True)
class Pack(_Stage):
    """Puts lists of tokens together into rows of one length, which are the examples from then on.

    Attributes:
      column: The feature.
      length: How many tokens a row has.
      splits: Whether a list may begin in one row and end in the next.
    """

    column: str
    length: int
    splits: bool

    def __post_init__(self) -> None:
        if self.length < 1:
            raise InvalidOptionError(
                explain(f"Rows of {self.length} tokens are none.", fix="give 1 or more")
            )

    def explain(self) -> str:
        """Says what is done."""
        how = "all tokens on end" if self.splits else "whole lists, so that they fit best"
        return f"rows of {self.length:,} of {self.column!r}: {how}"

    @property
    def order(self) -> str:
        """All of it: rows are what is ordered."""
        return f"rows of {self.length} of {self.column!r}{', split' if self.splits else ''}"


@dataclass(frozen=True)
class Mix(_Stage):
    """Takes examples of several plans, each with its share.

    Attributes:
      parts: The stages of each plan, as far as they are about single examples.
      shares: How many examples of each there are among as many as the sum of all.
      stop: When an epoch ends: when all examples of the first plan were given, or of the last.
      seed: Makes another order of the plans.
      is_drawn: Whether it was drawn at random; see `Shuffle`.
    """

    parts: tuple[tuple["Stage", ...], ...]
    shares: tuple[int, ...]
    stop: Stop = "first"
    seed: int = 0
    is_drawn: bool = False

    def __post_init__(self) -> None:
        if self.stop not in ("first", "all"):
            raise InvalidOptionError(
                explain(f"stop={self.stop!r} is unknown.", fix="use 'first' or 'all'")
            )

    def explain(self) -> str:
        """Says what is done."""
        drawn = ", drawn at random" if self.is_drawn else ""
        lines = [f"an epoch ends with {self.stop}; seed {self.seed}{drawn}"]
        for share, part in zip(self.shares, self.parts, strict=True):
            of = "; ".join(stage.explain() for stage in part)
            lines.append(f"  {share / sum(self.shares):6.1%}  {of}")
        return "\n".join(lines)

    @property
    def order(self) -> str:
        """The shares and the seed."""
        return f"mixed {'/'.join(map(str, self.shares))} until {self.stop}, seed {self.seed}"


Stage = (
    Read | Shuffle | Bucket | Shard | Decode | Tokenize | Cache | Pack | Mix | Batch | Repeat
    | Prefetch
)  # fmt: skip
KINDS: dict[str, type[Stage]] = {kind.__name__.lower(): kind for kind in get_args(Stage)}
