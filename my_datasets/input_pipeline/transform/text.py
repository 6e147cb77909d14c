"""Tokenization with Hugging Face's `tokenizers`: training a vocabulary, and encoding texts."""

import functools
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from my_datasets.core.arrays import Array
from my_datasets.core.reference import DatasetReference
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import FeatureError, InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import Column, Columns, Leaves, Ragged
from my_datasets.input_pipeline.order import length_batching
from my_datasets.input_pipeline.order.permutation import Places
from my_datasets.input_pipeline.plan import option_rules as rules
from my_datasets.input_pipeline.plan.options import checked
from my_datasets.input_pipeline.read.source import IndexedExamples, source
from my_datasets.input_pipeline.stopwatch import timed
from my_datasets.metadata.features import Leaf

if TYPE_CHECKING:
    import tokenizers

Kind = Literal["words", "bpe", "wordpiece"]
_AT_ONCE = 1024
PADDING, UNKNOWN = "[PAD]", "[UNK]"


@checked(
    called="text.train_tokenizer",
    also={
        "column": rules.name,
        "kind": rules.choice(*get_args(Kind)),
        "size": rules.whole(1),
        "lowercase": rules.flag(),
    },
)
def train_tokenizer(
    reference: str | DatasetReference,
    column: str,
    *,
    kind: Kind = "words",
    size: int = 20_000,
    special: Sequence[str] = (PADDING, UNKNOWN),
    lowercase: bool = True,
    split: str = "train",
    data_dir: str | os.PathLike[str] | None = None,
) -> "tokenizers.Tokenizer":
    """Trains a tokenizer on the texts of a split, in one pass.

    Args:
      reference: For example `"movie_sentiment"`; or a prepared version's directory.
      column: The feature that holds the texts.
      kind: `"words"` for the most frequent whole words; `"bpe"` (byte-pair encoding) or
        `"wordpiece"` for subwords.
      size: The maximum number of entries in the vocabulary.
      special: The first entries: `[PAD]` first, so that its id is 0, and `[UNK]` for unknown
        tokens.
      lowercase: Whether texts are converted to lower case.
      split: The split or slice.
      data_dir: The data directory; TFDS's default if None.

    Returns:
      A tokenizer; `.save("words.json")` writes the file that `plan(..., tokenizer=...)` takes.

    Raises:
      FeatureError: The dataset has no text feature of this name.
      InvalidOptionError: An option is invalid.
      MissingDependencyError: The extra `text` is not installed.
    """
    try:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    except ModuleNotFoundError as error:
        raise missing_dependency("tokenizers", needed_for="training a tokenizer") from error
    if UNKNOWN not in special or size <= len(special):
        raise InvalidOptionError(
            f"A vocabulary of size={size} with special={list(special)} is not possible.",
            f"Expected {UNKNOWN!r} among the special entries, and room for others",
            fix=f"give special=({PADDING!r}, {UNKNOWN!r}) and a larger size",
        )
    kinds: dict[str, tuple[Any, Any]] = {
        "words": (models.WordLevel, trainers.WordLevelTrainer),
        "bpe": (models.BPE, trainers.BpeTrainer),
        "wordpiece": (models.WordPiece, trainers.WordPieceTrainer),
    }
    texts = source(reference, split=split, data_dir=data_dir, columns=[column.partition("/")[0]])
    leaf = length_batching.leaf_of(texts.tree, column)
    if not length_batching.is_text(leaf):
        raise _no_text(column)
    model, trainer = kinds[kind]
    found = Tokenizer(model(unk_token=UNKNOWN))
    normal = [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    found.normalizer = normalizers.Sequence(normal)
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    teacher = trainer(vocab_size=size, special_tokens=list(special), show_progress=False)
    found.train_from_iterator(_batches(texts, leaf), teacher, length=len(texts))
    return found


def _batches(texts: IndexedExamples, leaf: Leaf) -> Iterator[list[str]]:
    for begin in range(0, len(texts), _AT_ONCE):
        numbers = np.arange(begin, min(begin + _AT_ONCE, len(texts)))
        column = length_batching.column_of(texts.tree, texts.columns(numbers, 0), leaf)
        yield [text.decode("utf-8", "replace") for text in column]


@dataclass(frozen=True)
class TokenizedSource:
    """Examples with one text replaced by its token ids, int32, by the tokenizer in a file."""

    source: IndexedExamples
    column: str
    path: str

    def __post_init__(self) -> None:
        if not length_batching.is_text(length_batching.leaf_of(self.source.tree, self.column)):
            raise _no_text(self.column)

    @functools.cached_property
    def tree(self) -> Leaves:
        """The leaves of an example, nested like its columns."""

        def changed(leaf: Leaf) -> Leaf:
            if leaf.name != self.column:
                return leaf
            return replace(leaf, form="number", dtype="int32", sequence=(None,))

        return pytree.map_columns(changed, self.source.tree)

    @property
    def skipped(self) -> int:
        """The number of distinct examples skipped so far."""
        return self.source.skipped

    def __len__(self) -> int:
        return len(self.source)

    def columns(self, numbers: Places, epoch: int) -> Columns:
        """Returns the examples with these numbers as columns, with the text tokenized."""

        def changed(leaf: Leaf, column: Any) -> Column:
            return self._encoded(column) if leaf.name == self.column else column

        columns = self.source.columns(numbers, epoch)
        with timed("tokenize"):
            return pytree.map_columns(changed, self.source.tree, columns)

    def _encoded(self, texts: Array) -> Ragged:
        decoded = [text.decode("utf-8", "replace") for text in texts]
        ids = [one.ids for one in self._tokenizer.encode_batch_fast(decoded)]
        counts = np.fromiter(map(len, ids), np.int64, len(ids))
        values = np.fromiter((i for one in ids for i in one), np.int32, int(counts.sum()))
        return Ragged(values, (counts,))

    @functools.cached_property
    def _tokenizer(self) -> "tokenizers.Tokenizer":
        return opened(self.path)


def opened(path: str) -> "tokenizers.Tokenizer":
    """Loads a tokenizer from a file.

    Raises:
      InvalidOptionError: The file does not exist or is not a tokenizer.
      MissingDependencyError: The extra `text` is not installed.
    """
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise missing_dependency("tokenizers", needed_for="tokenizer=...") from error
    try:
        found = Tokenizer.from_file(path)
        # Padding extends each text to the longest one encoded with it, so values would depend on
        # how examples are batched.
        found.no_padding()
        return found
    except Exception as error:  # tokenizers raises plain Exception
        raise _no_tokenizer(path, error) from error


def content_of(path: str) -> str:
    """Returns a tokenizer file's SHA-256 in hexadecimal; InvalidOptionError if it is unreadable."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise _no_tokenizer(path, error) from error


def _no_tokenizer(path: str, error: Exception) -> InvalidOptionError:
    return InvalidOptionError(
        f"{path} is not a tokenizer: {error}",
        "Expected the JSON of Hugging Face's tokenizers",
        fix="write one with my_datasets.text.train_tokenizer(...).save(path)",
    )


def _no_text(column: str) -> FeatureError:
    return FeatureError(
        f"The feature {column!r} is not a text.", fix="choose one that is a single text"
    )
