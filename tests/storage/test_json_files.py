"""JSON that was made to harm whoever parses it."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.publishing.model.record import ReleasedFile
from my_datasets.storage.json_files import (
    MOST_MANIFEST_BYTES,
    MalformedJsonError,
    convert_json,
    parse_json,
    read_json,
)

HOSTILE = {
    "deep lists": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "just too deep": "[" * 102 + "]" * 102,
    "a huge number": "[1" + "0" * 400 + "]",
    "a number beyond Python's own limit": "[1" + "0" * 5_000 + "]",
    "an infinite float": '{"a": 1e999}',
    "NaN": '{"a": NaN}',
    "Infinity": "[-Infinity]",
    "two members of one name": '{"a": 1, "b": {"c": 1, "c": 2}}',
    "half a surrogate pair": '{"a": "\\ud800"}',
    "half a surrogate pair in a name": '{"\\udc00": 1}',
    "not UTF-8": b'{"a": "\xff"}',
    "empty": b"",
    "cut off": '{"a": ',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused(name, tmp_path):
    with pytest.raises(MalformedJsonError):
        parse_json(HOSTILE[name])
    data = HOSTILE[name]
    (tmp_path / "it.json").write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(MalformedJsonError):
        read_json(tmp_path / "it.json")


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("my_datasets.storage.json_files.MOST_BYTES", 10)
    (tmp_path / "it.json").write_text("[1, 2, 3, 4]")
    with pytest.raises(MalformedJsonError, match="larger than 10 bytes"):
        read_json(tmp_path / "it.json")


def test_a_small_file_takes_no_more_memory_than_it_has(tmp_path):
    (tmp_path / "it.json").write_text("[1, 2, 3, 4]")
    tracemalloc.start()
    assert read_json(tmp_path / "it.json", MOST_MANIFEST_BYTES) == [1, 2, 3, 4]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


# Takes 40 s by counting each name in all of them, and 0.1 s otherwise.
@pytest.mark.timeout(20)
def test_two_members_of_one_name_among_many_are_found_at_once():
    names = ",".join(f'"k{i}":0' for i in range(60_000))
    with pytest.raises(MalformedJsonError, match="'zz'"):
        parse_json(f'{{{names},"zz":1,"zz":2}}')


def test_values_are_counted_before_they_are_made(tmp_path):
    (tmp_path / "it.json").write_text("[" + "[]," * 3_000_000 + "[]]")
    tracemalloc.start()
    with pytest.raises(MalformedJsonError, match="values"):
        read_json(tmp_path / "it.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20  # the lists take 192 MB


@pytest.mark.parametrize("text", [',[{\\"' * 1000, "\\\\", ',",[' * 100, "[]," * 1000])
def test_what_is_in_texts_are_no_values(text):
    assert parse_json(json.dumps([text, 1]), 2) == [text, 1]
    with pytest.raises(MalformedJsonError, match="more than 1 values"):
        parse_json(json.dumps([text, 1]), 1)


@pytest.mark.timeout(20)
def test_quotes_that_are_not_closed_cost_no_more():
    with pytest.raises(MalformedJsonError, match="is not JSON"):
        parse_json('["' + ',\\"' * 1_000_000, 9)


def test_metadata_of_700_000_shards_are_read(tmp_path):
    shards = [{"name": "x", "examples": i, "bytes": 9, "sha256": "0" * 64} for i in range(700_000)]
    (tmp_path / "it.json").write_text(json.dumps({"shards": shards}))
    with pytest.raises(MalformedJsonError, match="larger"):
        read_json(tmp_path / "it.json")
    assert len(read_json(tmp_path / "it.json", MOST_MANIFEST_BYTES)["shards"]) == 700_000


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 64), 1 << 64) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(documents)
def test_what_json_writes_is_read(value):
    assert parse_json(json.dumps(value)) == value


WRONG_FILES = {
    "null": ({"sha256": None}, r"got `null` - at `\$\.sha256`"),
    "a line feed after a hash": ({"sha256": "0" * 64 + "\n"}, r"regex .* at `\$\.sha256`"),
    "true for a number": ({"bytes": True}, r"got `bool` - at `\$\.bytes`"),
    "a float": ({"bytes": 1.0}, r"got `float` - at `\$\.bytes`"),
    "too large": ({"bytes": 1 << 64}, r"`int` .* at `\$\.bytes`"),
    "negative": ({"bytes": -1}, r"`int` >= 0 - at `\$\.bytes`"),
    "a list": ({"name": ["a"]}, r"got `array` - at `\$\.name`"),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_document_of_another_type_is_refused_by_its_member(wrong, message):
    good = {"name": "a", "bytes": 1, "sha256": "0" * 64, "unknown": 1}
    assert convert_json(good, ReleasedFile) == ReleasedFile("a", 1, "0" * 64)
    with pytest.raises(MalformedJsonError, match=message):
        convert_json({**good, **wrong}, ReleasedFile)
