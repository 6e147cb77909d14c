"""`source`: any example of a split at once, without TensorFlow."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol, Unpack

import numpy as np

from my_datasets.errors import ExampleError, FeatureError, InvalidOptionError, nearest
from my_datasets.input_pipeline.decode import images as images_as_floats
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.decoder import Decoder, FeatureMismatchError
from my_datasets.input_pipeline.decode.images import Crop
from my_datasets.input_pipeline.decode.missing import MissingItems, items_of, with_missing
from my_datasets.input_pipeline.decode.pytree import Ragged
from my_datasets.input_pipeline.plan import option_rules as rules
from my_datasets.input_pipeline.plan.option_rules import shown
from my_datasets.input_pipeline.plan.options import SourceOptions, checked
from my_datasets.input_pipeline.read.prepared import Prepared, find
from my_datasets.input_pipeline.stopwatch import timed
from my_datasets.metadata.features import Leaf
from my_datasets.records.random_access import RecordReader
from my_datasets.records.tf_example.columns import Places
from my_datasets.resolving.resolver import Reference


class IndexedExamples(Protocol):
    """Examples at random, as a pipeline takes them."""

    @property
    def tree(self) -> Any:
        """The leaves of an example, nested as the columns are."""

    @property
    def skipped(self) -> int:
        """How many different examples were passed over so far."""

    def __len__(self) -> int: ...

    def columns(self, numbers: Places, epoch: int) -> Any:
        """Returns some of the examples, as columns, as they are in an epoch."""


@dataclass(frozen=True)
class ExampleSource(Sequence[Any]):
    """The examples of a split, at random.

    It can be sent to other processes: they open the files for themselves.

    Attributes:
      name: The dataset's full name.
      split: The split or slice.
      records: Its records.
      decoder: Makes values of them.
    """

    name: str
    split: str
    records: RecordReader = field(repr=False)
    decoder: Decoder = field(repr=False)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: Any) -> Any:
        """Returns an example: values nested as the features are, or (input, target)."""
        if isinstance(number, slice):
            return self.getitems(range(*number.indices(len(self))))
        if np.ndim(number):
            raise InvalidOptionError(
                "source[...] takes one number, or a slice.",
                f"Found: {shown(number)}",
                fix="use source.getitems([...]) for several examples",
            )
        return self.getitems([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Returns examples, for PyTorch."""
        return self.getitems(numbers)

    def getitems(self, numbers: Sequence[int]) -> list[Any]:
        """Returns examples, read and decoded together.

        Args:
          numbers: Which, from 0; negative ones count from the end.

        Raises:
          IndexError: There is no such example.
          InvalidOptionError: They are no whole numbers.
          CorruptShardError, ExampleError: One of them is damaged.
        """
        columns = self.columns(numbers)
        return examples_of(columns, len(numbers))

    @property
    def tree(self) -> Any:
        """The leaves of an example, nested as its values are; images as they are given."""
        size = self.decoder.image_size

        def decoded(leaf: Leaf) -> Leaf:
            if leaf.form != "image":
                return leaf
            found = images_as_floats.float_leaf(leaf) if self.decoder.floats else leaf
            return found if size is None else replace(found, shape=(*size, *leaf.shape[2:]))

        return pytree.map_columns(decoded, self.decoder.tree)

    @property
    def skipped(self) -> int:
        """0: nothing is skipped here."""
        return 0

    def columns(self, numbers: Sequence[int] | Places, epoch: int = 0) -> Any:
        """Returns examples as columns: arrays of shape [n, ...], and `Ragged`s.

        Args:
          numbers: As for `getitems`.
          epoch: The epoch; each has random crops of its own.

        Raises:
          IndexError, CorruptShardError, ExampleError: As `getitems`.
        """
        try:
            return self.decoded(numbers, epoch)
        except FeatureMismatchError as error:
            raise self.explained(error, numbers) from error

    def decoded(self, numbers: Sequence[int] | Places, epoch: int = 0) -> Any:
        """As `columns`, but raises `FeatureMismatchError` where that raises `ExampleError`."""
        chosen = self._chosen(numbers)
        crop = self.decoder.crop
        with timed("read"):
            batch = self.records.read(chosen)
        return self.decoder(batch, None if crop is None else crop.draws(epoch, chosen))

    def explained(
        self, error: FeatureMismatchError, numbers: Sequence[int] | Places, which: int = 0
    ) -> ExampleError:
        """Returns an error that says where the example is stored.

        Args:
          error: The error.
          numbers: The examples that were decoded.
          which: Which of the faulty ones the error is about.
        """
        place = self.records.place(int(self._chosen(numbers)[error.rows[which]]))
        of = f"The feature {error.feature!r} of " if error.feature else ""
        return ExampleError(
            f"{of}{place} cannot be decoded.",
            f"Expected: {error.expected}",
            f"Found: {error.found}",
            fix="build or pull the version again; if its builder is at fault, fix that",
        )

    def _chosen(self, numbers: Sequence[int] | Places) -> Places:
        size = len(self)
        given = np.asarray(numbers)
        if given.size and (given.dtype.kind not in "iu" or given.ndim != 1):
            raise InvalidOptionError(
                f"Examples have whole numbers, from 0 to {size - 1:,}.",
                f"Found: {shown(numbers[0] if len(numbers) == 1 else numbers)}",
                fix="give such numbers",
            )
        chosen = given.astype(np.int64).reshape(-1)
        chosen = np.where(chosen < 0, chosen + size, chosen)
        if len(chosen) and not (chosen.min() >= 0 and chosen.max() < size):
            raise IndexError(f"{self.name} has {size:,} examples in {self.split!r}")
        return chosen

    def __iter__(self) -> Iterator[Any]:
        for begin in range(0, len(self), _AT_ONCE):
            yield from self.getitems(range(begin, min(begin + _AT_ONCE, len(self))))


# How many examples an iteration reads at once.
_AT_ONCE = 64


@checked()
def source(
    reference: Annotated[Reference, rules.no_plan], **options: Unpack[SourceOptions]
) -> ExampleSource:
    """Returns the examples of a prepared split for random access, without TensorFlow.

    Args:
      reference: For example `"digits"` or `"digits:1.*.*"`; or a prepared version's directory.
      split: A split or slice such as `"train[:80%]"`.
      data_dir: The data directory; TFDS's default if None.
      as_supervised: Return `(input, target)` instead of a dict.
      columns: The names of the features to decode; None for all.
      image_size: (height, width) to which images are resized; None to leave them.
      shards_dir: Where shards of an object store are cached; a folder of the user's cache if None.
      missing: What replaces missing values of optional features; see `plan`.

    Raises:
      NotPreparedError: There is no such version.
      SplitNotFoundError: There is no such split.
      FeatureError: A feature does not exist, or only TFDS can read it.
      InvalidOptionError: `missing` does not fit these features.
      MissingDependencyError: The package that decodes images is not installed.
    """
    as_supervised, columns = options["as_supervised"], options["columns"]
    check_form(as_supervised=as_supervised, columns=columns)
    found = find(reference, options["data_dir"], options["shards_dir"])
    return open_source(
        found, found.text_of(options["split"]), as_supervised=as_supervised, columns=columns,
        image_size=options["image_size"], missing=items_of(options["missing"]),
    )  # fmt: skip


def check_form(*, as_supervised: bool | None, columns: Sequence[str] | None) -> None:
    """Checks that not both input and target, and features by name, are wanted.

    Raises:
      InvalidOptionError: Both are.
    """
    if as_supervised and columns is not None:
        raise InvalidOptionError(
            "as_supervised=True gives the input and the target: columns= has no effect.",
            fix=f"give one of them: columns={list(columns)!r} gives a dict",
        )


def open_source(
    prepared: Prepared,
    split: str,
    *,
    as_supervised: bool,
    columns: Sequence[str] | None,
    image_size: tuple[int, int] | None,
    crop: Crop | None = None,
    floats: bool = False,
    max_cached_shards: int | None = None,
    missing: MissingItems = "tfds",
) -> ExampleSource:
    """Returns the examples of a split; arguments and errors are those of `source`.

    `crop` chooses the part of images that is resized; with `floats`, images become numbers from 0
    to 1; `max_cached_shards` is how many shards of an object store may be cached at a time.
    """
    tree = _chosen_features(prepared, as_supervised=as_supervised, columns=columns)
    decoder = Decoder(with_missing(tree, missing), image_size, crop, floats)
    if image_size is not None and not decoder.has_images:
        raise FeatureError(
            f"image_size changes nothing: what is read of {prepared.name} has no image.",
            f"Read: {', '.join('/'.join(leaf.path) for leaf in pytree.columns_of(tree))}",
            fix="leave image_size out, or choose an image with columns",
        )
    return ExampleSource(prepared.name, split, prepared.records(split, max_cached_shards), decoder)


def _chosen_features(
    prepared: Prepared, *, as_supervised: bool, columns: Sequence[str] | None
) -> Any:
    """Returns the leaves that are wanted.

    Raises:
      FeatureError: There is no such feature, or none are declared to be input and target.
    """
    tree = prepared.schema.tree
    if as_supervised:
        if prepared.schema.supervised is None:
            raise FeatureError(
                f"{prepared.name} declares no input and target.",
                fix="choose its features with columns=[...] and as_supervised=False",
            )
        return prepared.schema.supervised
    if columns is None:
        return tree
    known = {} if isinstance(tree, Leaf) else tree  # an example may be one value without a name
    missing = sorted(set(columns) - set(known))
    if missing:
        raise FeatureError(
            f"{prepared.name} has no feature {', '.join(map(repr, missing))}.",
            f"Its features: {', '.join(known) or 'one'}",
            nearest(missing[0], known),
            fix=f"choose {inside!r}, with all that it holds"
            if (inside := missing[0].partition("/")[0]) in known
            else "choose among those",
        )
    return {name: known[name] for name in columns}


def examples_of(columns: Any, n: int) -> list[Any]:
    """Returns examples: the rows of columns.

    Args:
      columns: As a `Decoder` gives them.
      n: How many rows they have.
    """
    if isinstance(columns, Mapping):
        split = {name: examples_of(values, n) for name, values in columns.items()}
        return [dict(zip(split, row, strict=True)) for row in zip(*split.values(), strict=True)]
    if isinstance(columns, tuple):
        return list(zip(*(examples_of(values, n) for values in columns), strict=True))
    return columns.rows() if isinstance(columns, Ragged) else list(columns)
