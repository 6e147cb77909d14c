"""What is shown of texts that others wrote."""

import json
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from my_datasets.printable import printable, printable_json

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
NO_WIDTH = set("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0").union(
    map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
)


def test_no_hidden_character_is_left():
    """Those of this Python's Unicode; what a later one adds is listed already, or fails there."""
    for code in range(sys.maxunicode + 1):
        is_hidden = unicodedata.category(chr(code)) in HIDDEN and chr(code) != "\n"
        is_hidden = is_hidden or chr(code) in NO_WIDTH
        shown = printable(f"a{chr(code)}b")
        assert (shown == f"a{chr(code)}b") != is_hidden or unicodedata.category(chr(code)) == "Cn"
        assert "".join(shown).isascii() or not is_hidden


def test_what_is_shown():
    assert printable("\x1b[2J\u202e\x9b\x7f") == r"\x1b[2J\u202e\x9b\x7f"
    assert printable("a\r\nb\tc\n") == "a\nb    c\n"
    assert printable("❤\ufe0f 1\ufe0f a\ufe0f") == "❤\ufe0f 1\ufe0f a\\ufe0f"
    assert printable("Grüße, 数字, 😀") == "Grüße, 数字, 😀"


@given(st.recursive(
    st.text() | st.sampled_from(["\x7f", "\u202e\x9b", "\U000e0041", "\ud800", "\t\r\n"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
))  # fmt: skip
def test_json_keeps_its_values(value):
    for ensure_ascii in (True, False):
        document = printable_json(json.dumps(value, indent=1, ensure_ascii=ensure_ascii))
        assert json.loads(document) == value
        assert printable(document) == document
    indented = json.dumps(value, indent="\t").replace("\n", "\r\n")
    assert json.loads(printable_json(indented)) == value
