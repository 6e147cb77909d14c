"""Vocabularies of texts, and looking them up."""

import collections
import re
import sys

import keras
import numpy as np
import pytest

import my_datasets
from my_datasets.errors import FeatureError, InvalidOptionError, MissingDependencyError, PlanError
from my_datasets.input_pipeline.plan.planner import plan


@pytest.fixture
def words(data_dir, tmp_path):
    path = tmp_path / "words.json"
    tokenizer = my_datasets.text.train_tokenizer("everything", "text", data_dir=data_dir, size=100)
    tokenizer.save(str(path))
    return path


def test_the_vocabulary_is_that_of_keras(data_dir):
    """The most frequent words, as `TextVectorization` finds them."""
    texts = [one["text"] for one in my_datasets.source("everything", data_dir=data_dir)]
    theirs = keras.layers.TextVectorization(
        max_tokens=60, standardize="lower_and_strip_punctuation"
    )
    theirs.adapt(texts)
    mine = my_datasets.text.train_tokenizer("everything", "text", data_dir=data_dir, size=60)
    vocabulary = mine.get_vocab()
    assert len(vocabulary) == 60
    assert (vocabulary["[PAD]"], vocabulary["[UNK]"]) == (0, 1)
    counts = collections.Counter(re.findall(r"\w+", b" ".join(texts).decode()))
    kept = sorted(counts[word] for word in vocabulary if word in counts)
    of_keras = sorted(counts[word] for word in theirs.get_vocabulary()[2:])
    assert kept == of_keras
    assert mine.encode("text 99999999").ids == [vocabulary["text"], 1]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_parts_of_words(data_dir, kind):
    found = my_datasets.text.train_tokenizer(
        "everything", "text", data_dir=data_dir, kind=kind, size=80
    )
    assert len(found.get_vocab()) <= 80
    assert 1 not in found.encode("text 123").ids


def test_texts_become_ragged_numbers(data_dir, words):
    options = {"data_dir": data_dir, "columns": ["whole", "text"], "batch_size": 50}
    plain = list(my_datasets.batches("everything", **options))
    options["tokenizer"] = {"text": words}
    vocabulary = my_datasets.text.opened(str(words)).get_vocab()
    for batch, other in zip(my_datasets.batches("everything", **options), plain, strict=True):
        assert batch["text"].values.dtype == np.int32
        for row, text in zip(batch["text"].rows(), other["text"], strict=True):
            expected = re.findall(r"\w+", text.decode())
            assert row.tolist() == [vocabulary.get(word, 1) for word in expected]
    train = my_datasets.pipeline("everything", **options)
    assert next(iter(train))["text"].to_tensor().dtype.name == "int32"


def test_several_texts_have_a_tokenizer_each(data_dir, words, tmp_path):
    names = my_datasets.text.train_tokenizer("everything", "inner/y/z", data_dir=data_dir, size=50)
    names.save(str(tmp_path / "names.json"))
    tokenizer = {"text": words, "inner/y/z": tmp_path / "names.json"}
    options = {"data_dir": data_dir, "columns": ["text", "inner"], "tokenizer": tokenizer}
    batch = next(iter(my_datasets.batches("everything", **options)))
    assert batch["text"].values.dtype == batch["inner"]["y"]["z"].values.dtype == np.int32


def test_packed_and_bucketed_texts(data_dir, words):
    options = {"data_dir": data_dir, "tokenizer": {"text": words}, "batch_size": 8}
    packed = plan("everything", pack=16, **options)
    batch = next(iter(my_datasets.batches(packed)))
    assert batch.keys() == {"text", "segments", "positions"}
    assert batch["text"].shape == (8, 16)
    assert (batch["segments"] > 0).mean() > 0.95
    for batch in my_datasets.batches("everything", columns=["text"], bucket_by="text", **options):
        lengths = batch["text"].lengths[0]
        assert lengths.max() - lengths.min() <= 2
    mixed = my_datasets.mix([packed, packed], weights=[1, 1], batch_size=4)
    assert next(iter(my_datasets.batches(mixed)))["text"].shape == (4, 16)


def test_another_tokenizer_is_noticed(data_dir, words):
    made = plan("everything", data_dir=data_dir, columns=["text"], tokenizer={"text": words})
    my_datasets.text.train_tokenizer("everything", "text", data_dir=data_dir, size=9).save(
        str(words)
    )
    with pytest.raises(PlanError, match="another tokenizer"):
        next(iter(my_datasets.batches(made)))


def test_what_cannot_be_is_said(data_dir, tmp_path, monkeypatch):
    train = my_datasets.text.train_tokenizer
    with pytest.raises(FeatureError, match="no feature 'whole'"):
        train("everything", "whole", data_dir=data_dir)
    with pytest.raises(FeatureError, match="is not a text"):
        train("everything", "list", data_dir=data_dir)
    with pytest.raises(InvalidOptionError, match="kind='letters'"):
        train("everything", "text", data_dir=data_dir, kind="letters")
    with pytest.raises(InvalidOptionError, match="size=2"):
        train("everything", "text", data_dir=data_dir, size=2)
    (tmp_path / "x.json").write_text("{}")
    for name in ("x.json", "missing.json"):
        with pytest.raises(InvalidOptionError, match="is not a tokenizer"):
            plan("everything", data_dir=data_dir, tokenizer={"text": tmp_path / name})
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'tokenizers>="):
        train("everything", "text", data_dir=data_dir)


def test_padding_of_a_tokenizer_is_left_out(data_dir, words):
    from tokenizers import Tokenizer

    padded = Tokenizer.from_file(str(words))
    padded.enable_padding()
    padded.save(str(words))
    options = {"data_dir": data_dir, "tokenizer": {"text": words}}
    packed = my_datasets.batches("everything", pack=16, batch_size=1, memory=200_000, **options)
    tokens = sum(int((batch["segments"] > 0).sum()) for batch in packed)
    ragged = my_datasets.batches("everything", columns=["text"], **options)
    assert tokens == sum(int(batch["text"].lengths[0].sum()) for batch in ragged)


def test_nested_texts_are_packed(data_dir, tmp_path):
    names = my_datasets.text.train_tokenizer("everything", "inner/y/z", data_dir=data_dir, size=50)
    names.save(str(tmp_path / "names.json"))
    options = {"data_dir": data_dir, "tokenizer": {"speech/fr": tmp_path / "names.json"}}
    with pytest.raises(InvalidOptionError, match="one feature of everything"):
        plan("everything", pack=4, **options)
